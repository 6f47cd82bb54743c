"""Material of visits: bundled speech, synthetic room noise and two pictures; each made once."""

from __future__ import annotations

import base64
import functools
import json
from dataclasses import dataclass
from fractions import Fraction

import av
import numpy as np

from headstart.benchmarks.inputs.recordings import CLIPS
from headstart.talk.media.audio import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from headstart.talk.media.playback import AudioPacket, JpegFrame, play, probe

PACKET_MS = 100
PACKET_BYTES = SAMPLE_RATE_HZ * PACKET_MS // 1000 * BYTES_PER_SAMPLE
SPEECH = ("capital.wav", "followup.wav")
MONOLOGUE = "monologue.ogg"
NOISE_S = 12
NOISE_RMS = 0.004
SEED = 5


@dataclass(frozen=True)
class Packet:
    """`PACKET_MS` of s16 mono at 24 kHz, and the event that appends it."""

    pcm: bytes
    event: str


def packets(pcm: bytes) -> list[Packet]:
    """`pcm` in whole packets, the last one padded with silence."""
    padded = pcm + bytes(-len(pcm) % PACKET_BYTES)
    pieces = [padded[at : at + PACKET_BYTES] for at in range(0, len(padded), PACKET_BYTES)]
    return [Packet(piece, append_event(piece)) for piece in pieces]


def append_event(pcm: bytes) -> str:
    audio = base64.b64encode(pcm).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


@functools.cache
def clip(name: str) -> list[Packet]:
    """A bundled recording of speech."""
    parts = play(probe(CLIPS / name), PACKET_MS, frames=False)
    return packets(b"".join(part.pcm for part in parts if isinstance(part, AudioPacket)))


@functools.cache
def cat() -> str:
    """The one picture that is shown, as a data URI: see `canary.SHOWN_OBJECT`."""
    parts = play(probe(CLIPS / "demo.mp4"), PACKET_MS, frames=True)
    jpeg = next(part.jpeg for part in parts if isinstance(part, JpegFrame))
    return "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()


@functools.cache
def noise_picture(side_px: int) -> str:
    """A PNG of random colours, which does not compress, as a data URI."""
    pixels = np.random.default_rng(SEED).integers(0, 256, (side_px, side_px, 3), np.uint8)
    encoder = av.CodecContext.create("png", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.width, encoder.height, encoder.pix_fmt = side_px, side_px, "rgb24"
    encoder.time_base = Fraction(1)
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
    png = b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])
    return "data:image/png;base64," + base64.b64encode(png).decode()


@functools.cache
def silence() -> list[Packet]:
    """One second of silence."""
    return packets(bytes(SAMPLE_RATE_HZ * BYTES_PER_SAMPLE))


@functools.cache
def room() -> list[Packet]:
    """A quiet room: white noise with one thump per second, without speech."""
    random = np.random.default_rng(SEED)
    sound = random.standard_normal(NOISE_S * SAMPLE_RATE_HZ) * NOISE_RMS
    for second in range(NOISE_S):
        at = second * SAMPLE_RATE_HZ + int(random.integers(SAMPLE_RATE_HZ // 2))
        thump = random.standard_normal(1200) * np.exp(-np.arange(1200) / 200) * 0.1
        sound[at : at + 1200] += thump
    return packets((sound.clip(-1, 1) * 32_767).astype("<i2").tobytes())
