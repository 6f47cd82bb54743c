"""Speech as odd recordings have it: heard right, or a sentence says what is wrong; never silence
without a word about it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest

from headstart.benchmarks.hearing.conditions import heard_by
from headstart.benchmarks.hearing.segmented import segmented_stream
from headstart.benchmarks.inputs.recordings import CLIPS, load_f32
from headstart.engine.asr.chosen import load_recognizer
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.gateway.errors import FileUndecodable
from headstart.talk.dialog import Turn
from headstart.talk.media.playback import AudioPacket, play, probe
from headstart.talk.output import JsonOutput
from tests.headstart.talk.odd_files import joined, write_floats

QUESTION = "What is the capital of France?"
FOLLOW_UP = "And which river runs through it?"
RATE_HZ = 48_000

Wave = npt.NDArray[np.float32]  # [channels, samples]


def question(rate_hz: int = RATE_HZ) -> Wave:
    return load_f32(CLIPS / "capital.wav", rate_hz)[None]


def loud(times: float) -> Wave:
    spoken = question()
    return spoken * np.float32(times / np.abs(spoken).max())


def damaged(every: int) -> Wave:
    spoken = question().copy()
    spoken[0, ::every] = np.nan
    return spoken


def square(seconds: float) -> Wave:
    at_s = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    return np.sign(np.sin(2 * np.pi * 220 * at_s))[None].astype(np.float32)


def play_out(path: Path) -> npt.NDArray[np.int16]:
    """What talk sends of a file."""
    packets = [p.pcm for p in play(probe(path), 40, frames=False) if isinstance(p, AudioPacket)]
    return np.frombuffer(b"".join(packets), np.int16)


@pytest.fixture(scope="module")
def recognizer(whisper_dir: Path) -> WhisperRecognizer:
    return load_recognizer(whisper_dir, "en")


def transcript(recognizer: WhisperRecognizer, path: Path) -> str:
    """Through talk's half, packets, the voice detector and the recogniser."""
    return heard_by(recognizer, segmented_stream(play_out(path).tobytes() + bytes(96_000), 500))


SPOKEN: dict[str, Callable[[], Wave]] = {
    "offset": lambda: question() + np.float32(0.5),
    "offset, down": lambda: question() - np.float32(0.5),
    "offset, beyond full scale": lambda: question() + np.float32(2.0),
    "clipped by 20 dB": lambda: np.clip(loud(10), -1, 1),
    "40 dB too loud, not clipped yet": lambda: loud(100),
    "16-bit values as floats": lambda: question() * np.float32(32768),
    "one side inverted": lambda: np.concatenate([question(), -question()]),
    "inverted, and an offset": lambda: np.concatenate([question() + 0.3, 0.3 - question()]),
    "inverted, quieter": lambda: np.concatenate([question() * np.float32(-0.9), question()]),
    "one side no numbers": lambda: np.concatenate([question(), question() * np.float32(np.nan)]),
    "a third no numbers": lambda: damaged(3),
    "behind a full-scale square wave": lambda: np.concatenate([square(0.5), question()], axis=1),
}


@pytest.mark.weights
@pytest.mark.parametrize("kind", sorted(SPOKEN))
def test_odd_speech_is_heard_right(
    kind: str, recognizer: WhisperRecognizer, tmp_path: Path
) -> None:
    """The question, word for word."""
    path = write_floats(tmp_path / "a.wav", SPOKEN[kind](), RATE_HZ, "pcm_f32le")
    assert transcript(recognizer, path) == QUESTION


@pytest.mark.weights
@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 44_100, 96_000, 192_000])
def test_speech_at_any_rate_is_heard_right(
    rate_hz: int, recognizer: WhisperRecognizer, tmp_path: Path
) -> None:
    """From telephony to studios."""
    path = write_floats(tmp_path / "a.wav", question(rate_hz), rate_hz, "pcm_f32le")
    assert transcript(recognizer, path) == QUESTION


def ogg(path: Path, clip: str, rate_hz: int, sides: tuple[int, ...]) -> Path:
    """An Opus file, each side a clip times that."""
    spoken = load_f32(CLIPS / clip, rate_hz)
    layout = "stereo" if len(sides) == 2 else "mono"
    pcm = np.rint(np.stack([spoken * side for side in sides], axis=1) * 32767).astype(np.int16)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libopus", rate=rate_hz)
        assert isinstance(stream, av.AudioStream)
        stream.layout = layout
        frame = av.AudioFrame.from_ndarray(pcm.reshape(1, -1), "s16", layout)
        frame.sample_rate, frame.pts = rate_hz, 0
        container.mux([*stream.encode(frame), *stream.encode(None)])
    return path


@pytest.mark.weights
@pytest.mark.parametrize("sides", [(1, 1), (1, -1), (1,)])
def test_each_link_of_a_chain_is_heard_right(
    sides: tuple[int, ...], recognizer: WhisperRecognizer, tmp_path: Path
) -> None:
    """Two Ogg files in one, the second with a format of its own: one side inverted, say."""
    first = ogg(tmp_path / "a.ogg", "capital.wav", 48_000, (1, 1))
    second = ogg(tmp_path / "b.ogg", "followup.wav", 16_000, sides)
    said = transcript(recognizer, joined(tmp_path / "ab.ogg", first, second))
    assert said == f"{QUESTION} {FOLLOW_UP}"


@pytest.mark.parametrize(
    ("wave", "remark"),
    [
        (square(1.0), "is clipped: 8"),
        (np.ones((1, RATE_HZ), np.float32), "a constant offset of 1.00 of full scale"),
        (np.zeros((1, RATE_HZ), np.float32), "is nearly silent"),
        (question() * np.float32(1e-3), "is nearly silent: its loudest sample lies 63 dB under"),
        (question() + np.float32(0.5), "a constant offset of 0.50 of full scale"),
        (question() * np.float32(32768), "samples up to 22959 where full scale is 1"),
    ],
    ids=["square", "constant", "silence", "quiet", "offset", "16-bit values"],
)
def test_what_is_wrong_with_a_sound_is_said(wave: Wave, remark: str, tmp_path: Path) -> None:
    """A sentence of `MediaFile.remarks`, which talk prints."""
    clip = probe(write_floats(tmp_path / "a.wav", wave, RATE_HZ, "pcm_f32le"))
    assert any(remark in sentence for sentence in clip.remarks), clip.remarks


def test_ordinary_speech_has_no_remark(tmp_path: Path) -> None:
    """Neither as recorded nnor 20 dB quieter."""
    for times in (1.0, 0.1):
        wave = question() * np.float32(times)
        clip = probe(write_floats(tmp_path / f"{times}.wav", wave, RATE_HZ, "pcm_f32le"))
        assert clip.remarks == ()


def test_no_numbers_at_all_are_refused(tmp_path: Path) -> None:
    """By name, with what to do."""
    path = write_floats(tmp_path / "a.wav", question() * np.nan, RATE_HZ, "pcm_f32le")
    with pytest.raises(FileUndecodable, match="no numbers"):
        probe(path)


def test_a_file_in_which_nobody_speaks_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json too: on stderr, for stdout is the events'."""
    out = io.StringIO()
    JsonOutput(out).turn_ended(Turn("quiet.wav", reports=False, all_sent=True))
    assert capsys.readouterr().err == "quiet.wav: no speech was found\n"
    assert out.getvalue() == ""
