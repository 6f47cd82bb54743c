import asyncio
import contextlib
import threading
from pathlib import Path

import av
import numpy as np
import pytest

from headstart.engine import api
from headstart.gateway.transport.webrtc import video_track
from headstart.gateway.transport.webrtc.aiortc_hooks import NewestFrame
from headstart.gateway.transport.webrtc.video_track import picture_of, watch, with_thumbnail
from headstart.gateway.video import decode
from headstart.gateway.video.decode import DecodedImage
from headstart.gateway.video.sampling import THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH
from tests.gateway.shell_fakes import until
from tests.headstart.talk.long_file.video_files import BLUE, RED, write_hdr, write_interlaced
from tests.headstart.talk.odd_files import rotate, write_video


def frame(rgb: tuple[int, int, int], width: int = 640, height: int = 480) -> av.VideoFrame:
    picture = np.full((height, width, 3), rgb, np.uint8)
    return av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="yuv420p")


@pytest.mark.parametrize(
    ("size", "scaled"),
    [((640, 480), (341, 256)), ((480, 640), (256, 341)), ((320, 200), (320, 200))],
)
def test_pictures_are_scaled_and_keep_their_shape(
    size: tuple[int, int], scaled: tuple[int, int]
) -> None:
    """The short side is 256 at most, if nothing else is asked for; small ones stay."""
    image = picture_of(frame((10, 20, 30), *size))
    assert (image.width, image.height) == scaled
    assert len(image.rgb) == 3 * image.width * image.height


def test_colours_are_right() -> None:
    """Red comes through YUV as red."""
    pixels = np.frombuffer(picture_of(frame((200, 30, 30))).rgb, np.uint8).reshape(-1, 3)
    assert np.abs(pixels.mean(axis=0) - (200, 30, 30)).max() < 4


async def test_the_newest_picture_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many between two looks the last is seen, once; its thumbnail was made off the loop."""
    source = NewestFrame()
    seen: list[api.Image] = []
    threads: set[str] = set()

    def see(one: DecodedImage) -> None:
        seen.append(one.image)

    def add_thumbnail(image: api.Image, before: bytes | None) -> DecodedImage:
        threads.add(threading.current_thread().name.split("_")[0])
        return decode.add_thumbnail(image, before)

    monkeypatch.setattr(video_track, "add_thumbnail", add_thumbnail)
    for level in range(0, 200, 20):
        await source.put(frame((level, level, level)))
    task = asyncio.create_task(watch(source, see, lambda: api.SMALL_PICTURE, 0.02))
    await until(lambda: seen)
    await asyncio.sleep(0.1)
    assert len(seen) == 1
    assert abs(np.frombuffer(seen[0].rgb, np.uint8).mean() - 180) < 4
    await source.put(frame((0, 0, 0)))
    await until(lambda: len(seen) == 2)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert threads == {"pictures"}


@pytest.mark.parametrize(
    ("orientation", "red"), [(1, (0, 0)), (3, (1, 1)), (6, (0, 1)), (8, (1, 0))]
)
def test_a_matrix_inside_the_video_is_followed(
    orientation: int, red: tuple[int, int], tmp_path: Path
) -> None:
    """A decoded frame that says how it is to be shown is seen so."""
    drawn = np.full((48, 64, 3), 255, np.uint8)
    drawn[:24, :32] = (255, 0, 0)
    path = rotate(write_video(tmp_path / "v.mp4", drawn), orientation)
    with av.open(str(path)) as container:
        image = picture_of(next(container.decode(video=0)))
    assert (image.width, image.height) == ((64, 48) if orientation < 5 else (48, 64))
    pixels = np.frombuffer(image.rgb, np.uint8).reshape(image.height, image.width, 3).astype(int)
    corners = pixels[np.ix_([4, -5], [4, -5])]
    assert np.argwhere(corners[..., 1] < 100).tolist() == [list(red)]


@pytest.mark.parametrize(("nits", "least", "most"), [(0.01, 0, 8), (203, 215, 250)])
def test_a_camera_of_high_dynamic_range_is_mapped(
    nits: float, least: int, most: int, tmp_path: Path
) -> None:
    """PQ in BT.2020, 10 bit, as of a file: the reference white is nearly white, and grey."""
    with av.open(str(write_hdr(tmp_path / "hdr.mp4", nits))) as container:
        image = picture_of(next(container.decode(video=0)))
    pixels = np.frombuffer(image.rgb, np.uint8).reshape(-1, 3).astype(int)
    assert least <= pixels.mean() <= most
    assert np.ptp(pixels.mean(axis=0)) <= 4


def test_an_interlaced_camera_shows_one_moment(tmp_path: Path) -> None:
    """Red and blue fields: only the upper one, at the size of both."""
    with av.open(str(write_interlaced(tmp_path / "i.mkv", RED, BLUE))) as container:
        image = picture_of(next(container.decode(video=0)))
    assert (image.width, image.height) == (160, 96)
    pixels = np.frombuffer(image.rgb, np.uint8).reshape(-1, 3).astype(int)
    assert np.abs(pixels - RED).max() < 12


@pytest.mark.parametrize(
    ("size", "scaled"),
    [((7680, 4320), (455, 256)), ((2, 10_000), (2, 10_000)), ((10_000, 2), (10_000, 2))],
)
def test_cameras_of_any_size_are_seen(size: tuple[int, int], scaled: tuple[int, int]) -> None:
    """8K becomes small; a strip has few pixels as it is. Thumbnail and scores are there."""
    seen = with_thumbnail(frame((200, 30, 30), *size), api.SMALL_PICTURE, b"")
    assert (seen.image.width, seen.image.height) == scaled
    assert seen.thumbnail.shape == (THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH)
    assert seen.scores is not None


def test_transparent_frames_are_on_white() -> None:
    """As on a web page."""
    see_through = av.VideoFrame.from_ndarray(np.zeros((48, 64, 4), np.uint8), format="rgba")
    assert min(picture_of(see_through).rgb) == 255
