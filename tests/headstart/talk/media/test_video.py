"""A file's pictures: upright, on white, one a second."""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image, ImageOps

from headstart.talk.media.frame_image import to_jpeg, to_rgb
from headstart.talk.media.video import Shown, first_s, frames, is_cover, jpegs, stream_of
from tests.headstart.talk.long_file.video_files import RED, plain
from tests.headstart.talk.long_file.video_files import write_video as write_odd
from tests.headstart.talk.media_files import write_audio
from tests.headstart.talk.odd_files import rotate, write_cover, write_timed, write_video


def seen(jpeg: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")).astype(int)


def quarters(width: int, height: int) -> np.ndarray:
    """Red, green, blue and white, clockwise from the top left."""
    pixels = np.full((height, width, 3), 255, np.uint8)
    pixels[: height // 2, : width // 2] = (255, 0, 0)
    pixels[: height // 2, width // 2 :] = (0, 255, 0)
    pixels[height // 2 :, width // 2 :] = (0, 0, 255)
    return pixels


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(128, 64), (1280, 720)])
def test_videos_are_upright(orientation: int, size: tuple[int, int], tmp_path: Path) -> None:
    """As a phone writes them, in all eight orientations, small ones and such as are scaled."""
    path = rotate(write_video(tmp_path / "v.mp4", quarters(*size)), orientation)
    (_, jpeg), *_ = jpegs(path, moving=True, start_s=0.0)
    stored = Image.fromarray(quarters(*size))
    stored.getexif()[274] = orientation
    wanted = ImageOps.exif_transpose(stored)
    got = seen(jpeg)
    assert got.shape[0] * wanted.width == pytest.approx(got.shape[1] * wanted.height, rel=0.01)
    assert max(got.shape) <= 640
    wanted = np.asarray(wanted.resize((got.shape[1], got.shape[0]))).astype(int)
    assert np.abs(got - wanted).mean() < 12


def test_a_cover_is_no_video_and_is_on_white(tmp_path: Path) -> None:
    """Black on a see-through ground in an MP3's cover; shown once, at the beginning."""
    drawn = np.zeros((48, 64, 4), np.uint8)
    drawn[:, :32, 3] = 255
    path = write_cover(tmp_path / "a.mp3", "mp3", drawn)
    with av.open(str(path)) as container:
        cover = stream_of(container, moving=False)
        assert cover is not None
        assert is_cover(cover)
        assert stream_of(container, moving=True) is None
    assert first_s(path) is None
    ((at_s, jpeg),) = jpegs(path, moving=False, start_s=0.0)
    assert at_s == 0.0
    assert seen(jpeg)[:, :24].max() < 16
    assert seen(jpeg)[:, 40:].min() > 239


@pytest.mark.parametrize("start_s", [0.0, 7.25, 36_000.0])
def test_pictures_count_from_the_files_beginning(start_s: float, tmp_path: Path) -> None:
    """A picture a second, whenever the timestamps begin and however unevenly they come."""
    at_s = [0.0, 0.3, 0.9, 1.6, 1.7, 2.0, 3.9, 4.2]
    path = write_timed(
        tmp_path / "v.mkv", [(start_s, 5.0)], [(start_s + at, 30 * i) for i, at in enumerate(at_s)]
    )
    assert first_s(path) == pytest.approx(start_s, abs=0.01)
    found = list(frames(path, moving=True, start_s=start_s, shown=Shown(5.5)))
    assert [at for at, *_ in found] == pytest.approx([0.0, 1.0, 2.0, 3.9, 4.9], abs=0.02)
    levels = [frame.to_ndarray(format="gray").mean() for _, frame, _ in found]
    assert levels == pytest.approx([30 * n for n in (0, 2, 5, 6, 7)], abs=4)


def test_a_slide_that_comes_between_two_seconds_is_shown(tmp_path: Path) -> None:
    """A variable frame rate: a second after the one before, once."""
    at_s = [0.0, 0.4, 6.3]
    path = write_timed(
        tmp_path / "v.mkv", [(0.0, 9.0)], [(at, 100 * i) for i, at in enumerate(at_s)]
    )
    found = [
        (at, seen(jpeg).mean())
        for at, jpeg in jpegs(path, moving=True, start_s=0.0, shown=Shown(9.0))
    ]
    assert [at for at, _ in found] == pytest.approx([0.0, 1.0, 6.3], abs=0.02)
    assert [level for _, level in found] == pytest.approx([0, 100, 200], abs=4)


def test_pixels_that_are_not_square_are_shown_as_a_player_does(tmp_path: Path) -> None:
    """Twice as wide as they are high."""
    path = write_odd(
        tmp_path / "v.mkv",
        [plain(RED, 80, 96)] * 10,
        prepare=lambda v: setattr(v.codec_context, "sample_aspect_ratio", Fraction(2)),
    )
    (_, jpeg), *_ = jpegs(path, moving=True, start_s=0.0)
    assert seen(jpeg).shape == (96, 160, 3)


def test_timestamps_that_begin_anew_go_on(tmp_path: Path) -> None:
    """Two files joined: the second one's pictures come after the first one's."""
    parts = [
        write_audio(tmp_path / name, "mp2", 16_000, duration_s=2.0, video_s=2.0)
        for name in ("a.mpg", "b.mpg")
    ]
    whole = tmp_path / "ab.mpg"
    whole.write_bytes(b"".join(part.read_bytes() for part in parts))
    start_s = first_s(whole)
    assert start_s is not None
    times = [at_s for at_s, *_ in frames(whole, moving=True, start_s=start_s)]
    assert times == sorted(times)
    assert len(times) >= 4


@pytest.mark.parametrize("size", [(1, 1), (3, 900), (5000, 10)])
def test_any_shape_becomes_a_jpeg(size: tuple[int, int]) -> None:
    """Its longer side bounded, its sides even."""
    pixels = np.full((size[1], size[0], 3), 90, np.uint8)
    got = seen(to_jpeg(to_rgb(av.VideoFrame.from_ndarray(pixels))))
    assert max(got.shape) <= 640
    assert abs(got.mean() - 90) < 3
