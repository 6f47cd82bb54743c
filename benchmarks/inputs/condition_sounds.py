"""One sentence under many conditions: other beginnings, levels, codecs, noises and rooms.

Everything is seeded and happens at 24 kHz, as a client sends sound, to the sentence and the quiet
before and behind it alike: a noise is there before anybody speaks, as it is in a room.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from headstart.benchmarks.inputs import noise
from headstart.benchmarks.inputs.recordings import load_s16
from headstart.benchmarks.inputs.spoken import CHOOSE, SENTENCES, write
from headstart.benchmarks.inputs.voices import Line, Samples, cast
from headstart.gateway.audio import g711
from headstart.gateway.audio.clock import CLIENT_RATE_HZ as RATE_HZ
from headstart.gateway.transport.webrtc.opus import OpusDecoder

Sound = npt.NDArray[np.float64]  # [samples], 24 kHz mono, -1..1

LEAD_S, TAIL_S = 1.0, 3.0
"""Of the same room, before and behind a clip."""
ROOM_LEVEL = 8 / 32768  # of the room where no other noise is asked for
SEED = 14

OFFSETS = (1, 41, 83, 127, 167, 211, 251, 293, 337, 379, 421, 463)
"""Samples by which a beginning moves: over a window of the voice detector (480)."""

OPUS_BIT_RATE = 24_000
OPUS_FRAME_SAMPLES = RATE_HZ // 50
OPUS_DELAY_SAMPLES = 156  # of the encoder's look-ahead: 312 at 48 kHz

REVERBERATION_S = 0.35  # until its reflections are 60 dB down: a small furnished room
DIRECT_TO_REFLECTED_DB = 3.0  # at a metre or so

TALKERS = (
    "kokoro jf_alpha",
    "kokoro jf_nezumi",
    "espeak en-us+f4",
    "espeak en-gb+m3",
    "espeak en-gb",
    "espeak en-us+m7",
)
BABBLE_S = 20


@dataclass(frozen=True)
class Condition:
    """What is done to a sentence, in this order. `noise`: "pink" or "babble", so many dB under the
    voice; `codec`: "opus" or "g711", there and back."""

    name: str
    offset_samples: int = 0
    in_a_room: bool = False
    noise: str = ""
    snr_db: float = 0.0
    gain_db: float = 0.0
    codec: str = ""


CONDITIONS = (
    *(Condition(f"offset {samples}", samples) for samples in OFFSETS),
    Condition("+6 dB", gain_db=6),
    Condition("-6 dB", gain_db=-6),
    Condition("opus", codec="opus"),
    Condition("g711", codec="g711"),
    *(Condition(f"pink {db} dB", noise="pink", snr_db=db) for db in (20, 10, 5)),
    *(Condition(f"babble {db} dB", noise="babble", snr_db=db) for db in (20, 10, 5)),
    Condition("room", in_a_room=True),
    Condition("offset 167, opus", 167, codec="opus"),
    Condition("offset 293, g711", 293, codec="g711"),
    Condition("-6 dB, opus", gain_db=-6, codec="opus"),
    Condition("-6 dB, g711", gain_db=-6, codec="g711"),
    Condition("pink 20 dB, opus", noise="pink", snr_db=20, codec="opus"),
    Condition("pink 10 dB, g711", noise="pink", snr_db=10, codec="g711"),
    Condition("babble 20 dB, opus", noise="babble", snr_db=20, codec="opus"),
    Condition("babble 10 dB, g711", noise="babble", snr_db=10, codec="g711"),
    Condition("room, opus", in_a_room=True, codec="opus"),
    Condition("room, g711", in_a_room=True, codec="g711"),
    Condition("room, pink 20 dB", in_a_room=True, noise="pink", snr_db=20),
    Condition("room, babble 20 dB", in_a_room=True, noise="babble", snr_db=20),
    Condition("room, -6 dB, pink 20 dB, opus", 83, True, "pink", 20, -6, "opus"),
)


@dataclass(frozen=True, eq=False)
class Placed:
    """A clip within its room; the clip's own samples are [first, end) of `pcm`."""

    pcm: Samples
    first: int
    end: int


class Places:
    """Puts clips under conditions. `babble`: other people's talk; what is too short is repeated.

    `draw`: which of the independent draws of all that is random (0: the first).
    """

    def __init__(self, babble: Samples, draw: int = 0) -> None:
        self._babble = babble / 32768
        self._seed = _seed(draw)
        random = np.random.default_rng(self._seed)
        self._pink = noise.coloured(random, BABBLE_S * RATE_HZ, 1.0)
        self._response = _room_response(random)

    def put(self, clip: Samples, condition: Condition) -> Placed:
        """int16[n] at 24 kHz under that condition."""
        random = np.random.default_rng(self._seed)
        first = int(LEAD_S * RATE_HZ) + condition.offset_samples
        end = first + len(clip)
        whole = np.zeros(end + int(TAIL_S * RATE_HZ))
        whole[first:end] = clip / 32768
        if condition.in_a_room:
            whole = convolved(whole, self._response)
        voice_rms = active_rms(whole)
        whole += random.uniform(-ROOM_LEVEL, ROOM_LEVEL, len(whole))
        if condition.noise:
            background = {"pink": self._pink, "babble": self._babble}[condition.noise]
            start = random.integers(len(background))
            around = np.resize(np.roll(background, -start), len(whole))
            around *= voice_rms / 10 ** (condition.snr_db / 20) / np.sqrt(np.mean(around**2))
            whole += around
        whole *= 10 ** (condition.gain_db / 20)
        pcm = np.rint(np.clip(whole, -1, 32767 / 32768) * 32768).astype(np.int16)
        return Placed(_CODECS[condition.codec](pcm), first, end)


def active_rms(sound: Sound) -> float:
    """The level of a voice while it speaks: of the windows of 20 ms down to 25 dB under the
    loudest."""
    step = RATE_HZ // 50
    powers = np.mean(sound[: len(sound) // step * step].reshape(-1, step) ** 2, axis=1)
    return float(np.sqrt(np.mean(powers[powers > powers.max() * 10**-2.5])))


def _room_response(random: np.random.Generator) -> Sound:
    """The direct sound, and from 2 ms on reflections that decay (RT60)."""
    time_s = np.arange(int(REVERBERATION_S * RATE_HZ)) / RATE_HZ
    tail = random.standard_normal(len(time_s)) * 10 ** (-3 * time_s / REVERBERATION_S)
    tail[: RATE_HZ // 500] = 0
    tail *= 10 ** (-DIRECT_TO_REFLECTED_DB / 20) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    return np.asarray(tail)


def convolved(sound: Sound, response: Sound) -> Sound:
    """A sound in a room with that impulse response, cut to its own length."""
    size = 1 << (len(sound) + len(response)).bit_length()
    product = np.fft.rfft(sound, size) * np.fft.rfft(response, size)
    return np.asarray(np.fft.irfft(product, size)[: len(sound)])


def _as_it_is(pcm: Samples) -> Samples:
    return pcm


def _through_opus(pcm: Samples) -> Samples:
    """As a browser's microphone comes: 20 ms packets at 24 kbit/s."""
    codec = av.CodecContext.create("libopus", "w")
    assert isinstance(codec, av.AudioCodecContext)
    codec.bit_rate, codec.format, codec.layout = OPUS_BIT_RATE, "s16", "mono"
    codec.sample_rate, codec.time_base = RATE_HZ, Fraction(1, RATE_HZ)
    codec.options = {"application": "voip", "frame_duration": "20"}
    decoder, heard = OpusDecoder(RATE_HZ), []
    padded = np.pad(pcm, (0, -len(pcm) % OPUS_FRAME_SAMPLES + OPUS_FRAME_SAMPLES))
    for at in range(0, len(padded), OPUS_FRAME_SAMPLES):
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(padded[None, at : at + OPUS_FRAME_SAMPLES]), "s16", "mono"
        )
        frame.sample_rate, frame.pts = RATE_HZ, at
        heard += [decoder.decode(bytes(packet)) for packet in codec.encode(frame)]
    return np.concatenate(heard)[OPUS_DELAY_SAMPLES:][: len(pcm)]


def _through_g711(pcm: Samples) -> Samples:
    """As a telephone's comes: 8 kHz, μ-law."""
    sent = g711.Encoder("audio/pcmu").feed(pcm.tobytes())
    heard = np.frombuffer(g711.Decoder("audio/pcmu").feed(sent), np.int16)
    return np.pad(heard, (0, max(0, len(pcm) - len(heard))))[: len(pcm)]


_CODECS: dict[str, Callable[[Samples], Samples]] = {
    "": _as_it_is,
    "opus": _through_opus,
    "g711": _through_g711,
}


def babble(path: Path, draw: int = 0) -> Samples:
    """Six people who talk at once, none of them to us, kept in the WAV file `path`. In each draw
    they say their sentences in other orders."""
    if not path.exists():
        size = BABBLE_S * RATE_HZ
        together = np.zeros(size)
        texts = [text for text in SENTENCES[CHOOSE] if len(text) > 20]
        random = np.random.default_rng(_seed(draw))
        for number, (_, say) in enumerate(cast(TALKERS)):
            order = list(random.permutation(texts)) if draw else texts[number:] + texts[:number]
            at = 0
            for text in order:
                said = say(Line(text))[: size - at] / 32768
                together[at : at + len(said)] += said
                at += len(said)
                if at >= size:
                    break
        write(path, np.rint(together / np.abs(together).max() * 32000).astype(np.int16))
    return load_s16(path, RATE_HZ)


def _seed(draw: int) -> int | list[int]:
    """The first draw keeps the seed that earlier results were measured with."""
    return [SEED, draw] if draw else SEED
