"""headstart.gateway.video.decode: clients' pictures, from text to pixels."""

from __future__ import annotations

import gc
from collections.abc import Callable

import av
import numpy as np
import psutil
import pytest

from headstart.engine.api import SMALL_PICTURE, PictureSize
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.frame_pixels import flatten
from headstart.gateway.transport.webrtc.video_track import picture_of
from headstart.gateway.video import decode
from headstart.gateway.video.decode import Encoded
from headstart.gateway.video.file_sampling import small_rgb
from headstart.gateway.video.sampling import THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH
from tests.gateway.video.drawn import png


def test_a_picture_becomes_pixels_and_a_thumbnail() -> None:
    """Rows of RGB at the picture's own size when it is small, and its luma."""
    outcome = decode.decode([Encoded(png(20, 10, 77), "image")])
    assert not isinstance(outcome, ProtocolError)
    (seen,) = outcome
    assert (seen.image.width, seen.image.height) == (20, 10)
    assert seen.image.rgb == bytes([77]) * 600
    assert seen.thumbnail.shape == (THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH)
    assert abs(int(seen.thumbnail.mean()) - 77) <= 1


def test_scores_are_made_for_who_wants_them() -> None:
    """None unless asked for; the first frame is compared with nothing, the next with it."""
    plain, first = (
        decode.decode([Encoded(png(64, 36, 20), "image", before=before)]) for before in (None, b"")
    )
    assert not isinstance(plain, ProtocolError)
    assert not isinstance(first, ProtocolError)
    assert plain[0].scores is None
    scores = first[0].scores
    assert scores is not None
    assert scores.content is None
    second = decode.decode([Encoded(png(64, 36, 110), "image", before=scores.pixels)])
    assert not isinstance(second, ProtocolError)
    assert second[0].scores is not None
    assert second[0].scores.content == pytest.approx(30, abs=1)  # a third of the change of value


@pytest.mark.parametrize("convert", [flatten, picture_of, small_rgb])
def test_no_threads_are_started_for_a_picture(convert: Callable[[av.VideoFrame], object]) -> None:
    """They would live as long as the frame, as many as there are cores. (One core: none anyway.)"""
    planes = np.zeros((480, 640, 4), np.uint8)
    frame = av.VideoFrame.from_ndarray(planes, format="bgra")
    before = {thread.id for thread in psutil.Process().threads()}
    convert(frame)
    assert {thread.id for thread in psutil.Process().threads()} <= before


@pytest.mark.parametrize("size", [(1, 1), (3, 400), (257, 31)])
def test_any_shape_has_a_thumbnail(size: tuple[int, int]) -> None:
    """Odd and tiny sizes too."""
    outcome = decode.decode([Encoded(png(*size, 200), "image")])
    assert not isinstance(outcome, ProtocolError)
    assert outcome[0].thumbnail.shape == (THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH)


def test_the_first_bad_picture_is_named() -> None:
    """One error for all, with the name of the field that is wrong."""
    outcome = decode.decode([Encoded(png(4, 4, 1), "a"), Encoded("http://x/y.png", "b")])
    assert isinstance(outcome, ProtocolError)
    assert outcome.param == "b"


@pytest.mark.parametrize(
    "text",
    [
        "http://x/y.png",
        "data:image/png;base64,!!",
        png(4, 4, 1)[:-24],
        "data:image/jpeg;base64,/9j/4AAQ" + "A" * 400,
    ],
)
def test_errors_hold_no_pictures(text: str) -> None:
    """An error for a file of megabytes leaves nothing that only the collector finds."""

    def look() -> None:
        outcome = decode.decode([Encoded(text, "image")])
        assert isinstance(outcome, ProtocolError)

    look()
    gc.collect()
    gc.disable()
    try:
        look()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_picture_is_no_larger_than_asked_for() -> None:
    """By its short side, or by its pixels; asked for more, it comes as it is."""
    sizes = [SMALL_PICTURE, PictureSize(pixels=300_000), PictureSize(pixels=480_000)]
    outcomes = [decode.decode([Encoded(png(800, 600, 9), "image")], size) for size in sizes]
    images = [o[0].image for o in outcomes if not isinstance(o, ProtocolError)]
    shapes = [(image.width, image.height) for image in images]
    assert shapes == [(341, 256), (632, 474), (800, 600)]
