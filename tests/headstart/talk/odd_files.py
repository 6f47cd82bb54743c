"""Media files as the world has them: made by PyAV, and bent."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from tests.headstart.talk.media_files import TONE_HZ, tone

ONE = 1 << 16
# a, b, c, d of the display matrix for each Exif orientation: see gateway.protocol.orientation.
MATRICES = {
    1: (1, 0, 0, 1),
    2: (-1, 0, 0, 1),
    3: (-1, 0, 0, -1),
    4: (1, 0, 0, -1),
    5: (0, 1, 1, 0),
    6: (0, 1, -1, 0),
    7: (0, -1, -1, 0),
    8: (0, -1, 1, 0),
}


def joined(path: Path, *parts: Path) -> Path:
    """Files one after the other, as `cat` puts them."""
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return path


def write_floats(path: Path, samples: npt.NDArray[Any], rate_hz: int, codec: str) -> Path:
    """[channels, samples] as they are; stereo if there are two channels."""
    channels = len(samples)
    layout = {1: "mono", 2: "stereo"}.get(channels, f"{channels}c")
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate_hz)
        assert isinstance(stream, av.AudioStream)
        stream.layout = layout
        interleaved = np.ascontiguousarray(samples.T).reshape(1, -1)
        name = {"pcm_f32le": "flt", "pcm_f64le": "dbl", "pcm_s16le": "s16"}[codec]
        frame = av.AudioFrame.from_ndarray(interleaved, name, layout)
        frame.sample_rate, frame.pts = rate_hz, 0
        container.mux([*stream.encode(frame), *stream.encode(None)])
    return path


def sine(duration_s: float, rate_hz: int, hz: float = TONE_HZ) -> npt.NDArray[np.float32]:
    """[samples] at a quarter of full scale."""
    at_s = np.arange(round(duration_s * rate_hz)) / rate_hz
    return np.asarray(np.sin(2 * np.pi * hz * at_s) / 4, np.float32)


def write_timed(
    path: Path,
    sound: Sequence[tuple[float, float]],
    pictures: Sequence[tuple[float, int]] = (),
    codec: str = "pcm_s16le",
    rate_hz: int = 16_000,
) -> Path:
    """A tone at the times (start, length) in s of `sound`, and pictures of the given levels at
    theirs. Matroska keeps any timestamp."""
    with av.open(str(path), "w", options={"avoid_negative_ts": "disabled"}) as container:
        audio = container.add_stream(codec, rate=rate_hz)
        assert isinstance(audio, av.AudioStream)
        audio.layout = "mono"
        video = container.add_stream("mjpeg", rate=25) if pictures else None
        if video is not None:
            assert isinstance(video, av.VideoStream)
            video.width, video.height, video.pix_fmt = 64, 48, "yuvj420p"
            video.codec_context.time_base = Fraction(1, 1000)
        packets = []
        for start_s, lasts_s in sound:
            step = rate_hz // 10
            samples = tone(lasts_s, rate_hz)[0]
            for at in range(0, len(samples), step):
                frame = av.AudioFrame.from_ndarray(samples[None, at : at + step], "s16", "mono")
                frame.sample_rate, frame.time_base = rate_hz, Fraction(1, rate_hz)
                frame.pts = round(start_s * rate_hz) + at
                packets += audio.encode(frame)
        packets += audio.encode(None)
        for at_s, level in pictures:
            assert video is not None
            pixels = np.full((48, 64, 3), level, np.uint8)
            picture = av.VideoFrame.from_ndarray(pixels).reformat(format="yuvj420p")
            picture.time_base, picture.pts = Fraction(1, 1000), round(at_s * 1000)
            packets += video.encode(picture)
        if video is not None:
            packets += video.encode(None)
        packets.sort(key=lambda packet: (packet.pts or 0) * (packet.time_base or 1))
        container.mux(packets)
    return path


def rotate(path: Path, orientation: int) -> Path:
    """An MP4 with its video's display matrix changed in place."""
    data = bytearray(path.read_bytes())
    a, b, c, d = MATRICES[orientation]
    matrix = struct.pack(">9i", a * ONE, b * ONE, 0, c * ONE, d * ONE, 0, 0, 0, 1 << 30)
    at = -1
    while (at := data.find(b"tkhd", at + 1)) >= 0:
        body = at + 4
        width_at = body + 76  # of a version 0 box
        if struct.unpack_from(">I", data, width_at)[0]:  # sound has no width
            data[body + 40 : body + 76] = matrix
    path.write_bytes(data)
    return path


def write_cover(path: Path, codec: str, pixels: npt.NDArray[np.uint8]) -> Path:
    """A second of tone with a cover picture, [height, width, 3 or 4], in an MP3 or MP4."""
    with av.open(str(path), "w") as container:
        audio = container.add_stream(codec, rate=44_100)
        assert isinstance(audio, av.AudioStream)
        audio.layout = "mono"
        cover = container.add_stream("png", rate=1)
        assert isinstance(cover, av.VideoStream)
        cover.height, cover.width = pixels.shape[:2]
        cover.pix_fmt = "rgba" if pixels.shape[2] == 4 else "rgb24"
        cover.disposition = av.stream.Disposition.attached_pic
        picture = av.VideoFrame.from_ndarray(pixels, format=cover.pix_fmt)
        packets = [*cover.encode(picture), *cover.encode(None)]
        frame = av.AudioFrame.from_ndarray(tone(1.0, 44_100), "s16", "mono")
        frame.sample_rate, frame.pts = 44_100, 0
        packets += [*audio.encode(frame), *audio.encode(None)]
        container.mux(packets)
    return path


def write_video(path: Path, pixels: npt.NDArray[np.uint8]) -> Path:
    """A second of one picture, [height, width, 3]."""
    with av.open(str(path), "w") as container:
        video = container.add_stream("mpeg4", rate=5)
        assert isinstance(video, av.VideoStream)
        video.height, video.width = pixels.shape[:2]
        video.pix_fmt, video.bit_rate = "yuv420p", 2_000_000
        for _ in range(5):
            container.mux(video.encode(av.VideoFrame.from_ndarray(pixels)))
        container.mux(video.encode(None))
    return path
