"""Videos as the world has them, made by PyAV: small, and each odd in one way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from tests.headstart.talk.media_files import tone
from tests.headstart.talk.odd_files import MATRICES, ONE

Picture = npt.NDArray[np.uint8]
RED, GREEN, BLUE = (200, 30, 30), (30, 160, 30), (30, 30, 200)
FPS = 10
SOUND_SAMPLES = 600


def plain(colour: Sequence[int], width: int = 160, height: int = 96) -> Picture:
    """One colour."""
    return np.full((height, width, 3), colour, np.uint8)


def write_video(
    path: Path,
    pictures: Sequence[Picture],
    *,
    codec: str = "mpeg4",
    pix_fmt: str = "yuv420p",
    at: Sequence[int] | None = None,
    fps: int = FPS,
    options: dict[str, str] | None = None,
    prepare: Callable[[Any], None] = lambda _: None,
    pcm: npt.NDArray[np.int16] | None = None,
    rate_hz: int = 24_000,
) -> Path:
    """`pictures` at `fps`, or at the numbers `at` in units of 1 / `fps` s; `pcm`: mono sound beside
    them; `prepare` gets the video stream before anything is encoded."""
    with av.open(str(path), "w") as container:
        video = container.add_stream(codec, rate=fps, options=options or {})
        assert isinstance(video, av.VideoStream)
        height, width = pictures[0].shape[:2]
        video.width, video.height, video.pix_fmt = width, height, pix_fmt
        video.time_base = video.codec_context.time_base = Fraction(1, fps)
        prepare(video)
        sound = None
        if pcm is not None:
            sound = container.add_stream(
                "aac" if path.suffix == ".mp4" else "pcm_s16le", rate=rate_hz
            )
            sound.layout = "mono"
        heard = 0
        for number, pixels in enumerate(pictures):
            kind = "rgba" if pixels.shape[2] == 4 else "rgb24"
            frame = av.VideoFrame.from_ndarray(pixels, format=kind)
            frame.pts, frame.time_base = number if at is None else at[number], Fraction(1, fps)
            container.mux(video.encode(frame))
            if sound is not None and pcm is not None:
                until = rate_hz * (number + 1) // fps if number < len(pictures) - 1 else len(pcm)
                for begin in range(heard, until, SOUND_SAMPLES):
                    piece = pcm[begin : min(begin + SOUND_SAMPLES, until)].reshape(1, -1)
                    part = av.AudioFrame.from_ndarray(piece, format="s16", layout="mono")
                    part.sample_rate, part.pts = rate_hz, begin
                    container.mux(sound.encode(part))
                heard = max(heard, until)
        for stream in (video, sound):
            if stream is not None:
                container.mux(stream.encode(None))
    return path


def changing(
    seconds: int, *colours: Sequence[int], width: int = 160, height: int = 96
) -> list[Picture]:
    """Each colour for as long as the others, together so many seconds at `FPS`."""
    each = seconds * FPS // len(colours)
    return [plain(colour, width, height) for colour in colours for _ in range(each)]


def write_rotated(path: Path, orientation: int) -> Path:
    """A red left half and a blue right one, with a display matrix in the MP4's track header."""
    picture = np.concatenate([plain(RED, 80), plain(BLUE, 80)], axis=1)
    write_video(path, [picture] * FPS)
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 4
    version = data[at]
    matrix_at = at + (40 if version == 0 else 52)
    a, b, c, d = MATRICES[orientation]
    rows = (a * ONE, b * ONE, 0, c * ONE, d * ONE, 0, 0, 0, 1 << 30)
    data[matrix_at : matrix_at + 36] = b"".join(v.to_bytes(4, "big", signed=True) for v in rows)
    path.write_bytes(data)
    return path


def write_hdr(path: Path, nits: float) -> Path:
    """Grey of so many cd/m² as PQ in BT.2020, 10 bit."""
    m1, m2 = 2610 / 16384, 2523 / 32
    c1, c2, c3 = 3424 / 4096, 2413 / 128, 2392 / 128
    power = (nits / 10_000) ** m1
    signal = ((c1 + c2 * power) / (1 + c3 * power)) ** m2
    luma = round(64 + 876 * signal)
    options = {"x265-params": "log-level=none:colorprim=9:transfer=16:colormatrix=9"}
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx265", rate=FPS, options=options)
        assert isinstance(video, av.VideoStream)
        video.width, video.height, video.pix_fmt = 128, 64, "yuv420p10le"
        context = video.codec_context
        context.color_primaries, context.color_trc, context.colorspace = 9, 16, 9
        context.color_range = 1
        for number in range(FPS):
            frame = av.VideoFrame(128, 64, "yuv420p10le")
            for plane, value in zip(frame.planes, (luma, 512, 512), strict=True):
                plane.update(np.full(plane.buffer_size // 2, value, np.uint16).tobytes())
            frame.pts = number
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
    return path


def break_middle(path: Path, share: float = 0.4, length: float = 0.2) -> Path:
    """Noise in place of some of a file's bytes."""
    data = bytearray(path.read_bytes())
    begin, size = int(len(data) * share), int(len(data) * length)
    noise = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    data[begin : begin + size] = noise.tobytes()
    broken = path.with_name(f"broken_{path.name}")
    broken.write_bytes(data)
    return broken


def noise(count: int) -> list[Picture]:
    """Pictures that no codec makes small."""
    random = np.random.default_rng(1)
    block = np.ones((8, 8, 1), np.uint8)
    return [np.kron(random.integers(0, 255, (12, 20, 3), np.uint8), block) for _ in range(count)]


def write_empty_video(path: Path, seconds: float) -> Path:
    """A tone beside a video stream that has no picture."""
    with av.open(str(path), "w") as container:
        video = container.add_stream("mpeg4", rate=10)
        assert isinstance(video, av.VideoStream)
        video.width, video.height, video.pix_fmt = 64, 64, "yuv420p"
        sound = container.add_stream("pcm_s16le", rate=24_000)
        assert isinstance(sound, av.AudioStream)
        sound.layout = "mono"
        frame = av.AudioFrame.from_ndarray(tone(seconds, 24_000), format="s16", layout="mono")
        frame.sample_rate, frame.pts = 24_000, 0
        container.mux([*sound.encode(frame), *sound.encode(None)])
    return path


def write_interlaced(path: Path, upper: Sequence[int], lower: Sequence[int]) -> Path:
    """A second whose fields have a colour each."""
    picture = plain(upper)
    picture[1::2] = lower

    def interlaced(video: av.VideoStream) -> None:
        flags = av.codec.context.Flags
        video.codec_context.flags |= flags.interlaced_dct | flags.interlaced_me

    return write_video(
        path,
        [picture] * FPS,
        codec="libx264",
        pix_fmt="yuv422p",
        options={"x264-params": "tff=1:log-level=none", "qp": "0"},
        prepare=interlaced,
    )
