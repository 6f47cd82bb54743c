"""The reading thread: bounds, fairness, changes, faults and its end."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np
import pytest

from headstart.engine import api
from headstart.engine.interfaces import Look
from headstart.engine.vision.encoder_cache import EncoderCache
from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.reading.background import (
    MAX_STILLS,
    BackgroundReader,
    PictureReading,
)
from headstart.engine.vision.reading.reader import CLOSELY, Abandoned, Detail, TextReader, Written

PATIENCE_S = 30


class Gated(TextReader):
    """Reads a picture's first byte, once it may."""

    def __init__(self) -> None:
        self.gate = threading.Semaphore(0)
        self.began = threading.Semaphore(0)
        self.read_bytes: list[int] = []

    def read(
        self, rgb: Rgb, detail: Detail, unwanted: Callable[[], bool] = lambda: False
    ) -> Written:
        self.began.release()
        while not self.gate.acquire(timeout=0.01):
            if unwanted():
                raise Abandoned
        first = int(rgb[0, 0, 0])
        self.read_bytes.append(first)
        if first == 255:
            raise RuntimeError("a fault of the test")
        if first == 254:
            raise SystemExit
        return Written((f"number {first}",) * (2 if detail is CLOSELY else 1))


@pytest.fixture
def gated() -> Gated:
    return Gated()


@pytest.fixture
def background(gated: Gated) -> Iterator[BackgroundReader]:
    ticks = count(1)
    background = BackgroundReader(
        gated, EncoderCache(1 << 20, 60.0, lambda: 0), lambda: next(ticks)
    )
    yield background
    background.close()


def picture(first: int) -> api.Image:
    return api.Image(40, 30, np.full((30, 40, 3), first, np.uint8).tobytes())


def frame(
    background: BackgroundReader, first: int, owner: str = "a", after: object = None
) -> PictureReading | None:
    return background.begin(picture(first), owner, b"", after, live=True)


def still(background: BackgroundReader, first: int, owner: str = "a") -> PictureReading:
    reading = background.begin(picture(first), owner, b"", None, live=False)
    assert reading is not None
    return reading


def collect(background: BackgroundReader, reading: PictureReading | None) -> PictureReading:
    assert reading is not None
    while not reading.done:
        assert select.select([background.fileno()], [], [], PATIENCE_S)[0]
        background.collect()
    return reading


def test_a_picture_is_read_and_known_from_then_on(
    background: BackgroundReader, gated: Gated
) -> None:
    """The second time, in any session of the domain, nothing is read."""
    gated.gate.release()
    first = collect(background, frame(background, 7))
    assert "number 7" in first.note(whole=False)
    assert first.ended_ns > first.began_ns >= first.queued_ns
    again = frame(background, 7, owner="b")
    assert again is not None
    assert again.done
    assert gated.read_bytes == [7]


def test_others_results_are_not_shared_beyond_their_domain(
    background: BackgroundReader, gated: Gated
) -> None:
    """The same picture in another domain is read again."""
    gated.gate.release(2)
    collect(background, frame(background, 7))
    other = background.begin(picture(7), "b", b"other", None, live=True)
    collect(background, other)
    assert gated.read_bytes == [7, 7]


def test_only_a_frame_that_changed_is_read(background: BackgroundReader, gated: Gated) -> None:
    """Noise of four levels is no change, forty are."""
    gated.gate.release()
    first = collect(background, frame(background, 100))
    assert frame(background, 104, after=first) is None
    assert frame(background, 140, after=first) is not None


def test_a_newer_frame_replaces_one_that_waits(background: BackgroundReader, gated: Gated) -> None:
    """The one that is being read is finished, the one between is not read."""
    first = frame(background, 1)
    assert gated.began.acquire(timeout=PATIENCE_S)
    second, third = frame(background, 50), frame(background, 99)
    assert second is not None
    assert second.given_up
    gated.gate.release(2)
    collect(background, first)
    collect(background, third)
    assert gated.read_bytes == [1, 99]


def test_stills_are_bounded_and_owners_take_turns(
    background: BackgroundReader, gated: Gated
) -> None:
    """A still beyond the bound is given up; another session comes second."""
    running = still(background, 1)
    assert gated.began.acquire(timeout=PATIENCE_S)
    kept = [still(background, 10 + n) for n in range(MAX_STILLS)]
    beyond = still(background, 90)
    assert beyond.given_up
    assert beyond.note(whole=True) == ""
    other = still(background, 200, owner="b")
    gated.gate.release(2 + MAX_STILLS)
    for reading in (running, *kept, other):
        collect(background, reading)
    assert gated.read_bytes[:3] == [1, 10, 200]


def test_a_closer_look_is_taken_once(background: BackgroundReader, gated: Gated) -> None:
    """The same picture is read with more detail, but not a third time."""
    gated.gate.release(2)
    glance = collect(background, still(background, 3))
    closer = background.begin_closer(glance, b"")
    assert closer is not None
    assert collect(background, closer).note(whole=True).count("number 3") == 2
    assert background.begin_closer(closer, b"") is None
    assert closer.look is Look.CLOSELY


def test_a_fault_of_one_picture_is_not_the_next_ones(
    background: BackgroundReader, gated: Gated
) -> None:
    """The thread survives, and the broken picture has no note."""
    gated.gate.release(2)
    broken = collect(background, still(background, 255))
    assert (broken.given_up, broken.note(whole=True)) == (True, "")
    assert "number 2" in collect(background, still(background, 2)).note(whole=True)


def test_a_closed_session_waits_for_nothing(background: BackgroundReader, gated: Gated) -> None:
    """Its waiting pictures are given up, and so is the one that is being read."""
    running = still(background, 1)
    assert gated.began.acquire(timeout=PATIENCE_S)
    waiting = still(background, 2)
    background.forget("a")
    assert waiting.given_up
    assert running.given_up
    next_one = still(background, 3, owner="b")
    assert gated.began.acquire(timeout=PATIENCE_S)  # without that the gate was opened
    gated.gate.release()
    collect(background, next_one)
    assert gated.read_bytes == [3]


def test_nothing_waits_for_a_thread_that_died(background: BackgroundReader, gated: Gated) -> None:
    """What it was reading, what waits and what comes is given up."""
    running, waiting = still(background, 254), still(background, 1)
    gated.gate.release()
    assert collect(background, running).given_up
    assert waiting.given_up
    assert still(background, 2).given_up


def test_the_end_does_not_wait_for_the_pictures(gated: Gated) -> None:
    """Closing stops the reading under way."""
    background = BackgroundReader(gated, EncoderCache(1 << 20, 60.0, lambda: 0))
    still(background, 1)
    still(background, 2)
    background.close()
    assert gated.read_bytes == []
