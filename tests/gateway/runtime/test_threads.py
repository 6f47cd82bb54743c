"""The threads beside the event loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headstart.gateway.runtime.threads import Threads


def named(name: str) -> int:
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


async def test_their_number_is_the_same_from_the_start() -> None:
    """However much is asked of them at once; without a start they come as they are wanted."""
    threads = Threads("test_all", 2)
    assert named("test_all") == 0
    threads.start()
    assert named("test_all") == 2
    made = await asyncio.gather(*(threads.run(lambda n: n * n, n) for n in range(20)))
    assert made == [n * n for n in range(20)]
    assert named("test_all") == 2


async def test_what_is_raised_there_is_raised_here() -> None:
    """A picture that cannot be converted is the caller's business."""
    with pytest.raises(ZeroDivisionError):
        await Threads("test_raises", 1).run(lambda n: 1 // n, 0)
