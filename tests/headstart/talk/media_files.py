"""Small media files, made by PyAV when a test needs one."""

from __future__ import annotations

import wave
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

TONE_HZ = 440.0


def tone(duration_s: float, rate_hz: int, channels: int = 1) -> np.ndarray:
    """s16 [1, samples * channels], interleaved, at a quarter of full scale."""
    at_s = np.arange(round(duration_s * rate_hz)) / rate_hz
    samples = (np.sin(2 * np.pi * TONE_HZ * at_s) * 8192).astype(np.int16)
    return np.repeat(samples[:, None], channels, axis=1).reshape(1, -1)


def write_audio(
    path: Path,
    codec: str,
    rate_hz: int,
    layout: str = "mono",
    duration_s: float = 1.0,
    video_s: float = 0.0,
) -> Path:
    """A tone in the container the suffix names; with `video_s`, a picture that grows lighter at
    10 frames a second. MP4s have their index first, as files for streaming do."""
    options = {"movflags": "faststart"} if path.suffix == ".mp4" else {}
    with av.open(str(path), "w", options=options) as container:
        audio = container.add_stream(codec, rate=rate_hz)
        assert isinstance(audio, av.AudioStream)
        audio.layout = layout
        if video_s:
            _write_video(container, video_s)
        samples = tone(duration_s, rate_hz, channels=1 if layout == "mono" else 2)
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout=layout)
        frame.sample_rate = rate_hz
        frame.pts = 0
        container.mux([*audio.encode(frame), *audio.encode(None)])
    return path


def _write_video(container: av.container.OutputContainer, duration_s: float) -> None:
    video = container.add_stream("mpeg4", rate=10)
    assert isinstance(video, av.VideoStream)
    video.width, video.height, video.pix_fmt = 320, 240, "yuv420p"
    video.time_base = Fraction(1, 10)
    for index in range(round(duration_s * 10)):
        picture = np.full((240, 320, 3), min(255, index * 8), np.uint8)
        container.mux(video.encode(av.VideoFrame.from_ndarray(picture)))
    container.mux(video.encode(None))


def write_video_only(path: Path, duration_s: float = 0.5) -> Path:
    with av.open(str(path), "w") as container:
        _write_video(container, duration_s)
    return path


def cut(path: Path, share: float) -> Path:
    """The first `share` of a file's bytes, as another file."""
    data = path.read_bytes()
    shorter = path.with_name(f"cut_{path.name}")
    shorter.write_bytes(data[: round(len(data) * share)])
    return shorter


def write_quiet(path: Path, duration_s: float, rate_hz: int = 16_000) -> Path:
    """A WAV of zeros, of any length, 0 included."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(bytes(2 * round(duration_s * rate_hz)))
    return path
