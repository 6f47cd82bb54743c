"""gateway.media.pictures: clients' pictures, decoded off the event loop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from engine.api import SMALL_PICTURE, PictureSize
from gateway.media import pictures
from gateway.media.frames import THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH
from gateway.media.pictures import Encoded
from gateway.protocol.errors import ProtocolError
from tests.gateway.media.drawn import png


def test_a_picture_becomes_pixels_and_a_thumbnail() -> None:
    """Rows of RGB at the picture's own size when it is small, and its luma."""
    outcome = pictures.decode([Encoded(png(20, 10, 77), "image")])
    assert not isinstance(outcome, ProtocolError)
    (seen,) = outcome
    assert (seen.image.width, seen.image.height) == (20, 10)
    assert seen.image.rgb == bytes([77]) * 600
    assert seen.thumbnail.shape == (THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH)
    assert abs(int(seen.thumbnail.mean()) - 77) <= 1


@pytest.mark.parametrize("size", [(1, 1), (3, 400), (257, 31)])
def test_any_shape_has_a_thumbnail(size: tuple[int, int]) -> None:
    """Odd and tiny sizes too."""
    outcome = pictures.decode([Encoded(png(*size, 200), "image")])
    assert not isinstance(outcome, ProtocolError)
    assert outcome[0].thumbnail.shape == (THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH)


def test_the_first_bad_picture_is_named() -> None:
    """One error for all, with the name of the field that is wrong."""
    outcome = pictures.decode([Encoded(png(4, 4, 1), "a"), Encoded("http://x/y.png", "b")])
    assert isinstance(outcome, ProtocolError)
    assert outcome.param == "b"


def test_a_picture_is_no_larger_than_asked_for() -> None:
    """By its short side, or by its pixels; asked for more, it comes as it is."""
    sizes = [SMALL_PICTURE, PictureSize(pixels=300_000), PictureSize(pixels=480_000)]
    outcomes = [pictures.decode([Encoded(png(800, 600, 9), "image")], size) for size in sizes]
    images = [o[0].image for o in outcomes if not isinstance(o, ProtocolError)]
    shapes = [(image.width, image.height) for image in images]
    assert shapes == [(341, 256), (632, 474), (800, 600)]


async def test_the_loop_goes_on_meanwhile() -> None:
    """While pictures are decoded on other threads, the loop runs other things."""
    turns, done = 0, threading.Event()

    async def spin() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    spinning = asyncio.create_task(spin())
    large = Encoded(png(2000, 1500, 9), "image")
    began_s = time.perf_counter()
    outcomes = await asyncio.gather(*(pictures.run([large], SMALL_PICTURE) for _ in range(6)))
    assert time.perf_counter() - began_s > 0.01, "too quick to tell"
    done.set()
    await spinning
    assert turns > 20
    assert not any(isinstance(outcome, ProtocolError) for outcome in outcomes)
