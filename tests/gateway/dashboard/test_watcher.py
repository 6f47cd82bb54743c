"""A watcher's queue: bounded, the oldest go first, and are counted."""

from __future__ import annotations

import asyncio
import json

from headstart.gateway.dashboard.messages import Message, Snapshot
from headstart.gateway.dashboard.watcher import Watcher


def message(seq: int, size: int = 0) -> Message:
    return Message("turn", seq, 0.0, lambda: {"x": "x" * size})


def seqs(watcher: Watcher) -> list[int]:
    return [json.loads(line)["seq"] for line in iter(watcher.take, None)]


def test_a_slow_reader_loses_the_oldest() -> None:
    """By number, and is told by the next snapshot how many."""
    watcher = Watcher(messages_max=10)
    for seq in range(25):
        watcher.put(message(seq))
    watcher.put(Snapshot("snapshot", 25, 0.0, lambda: {"rows": [{"dropped": 0}]}))
    assert len(watcher) == 10
    assert watcher.dropped == 16
    lines = list(iter(watcher.take, None))
    assert [json.loads(line)["seq"] for line in lines] == list(range(16, 26))
    assert json.loads(lines[-1]) == {
        "type": "snapshot",
        "seq": 25,
        "at_ms": 0.0,
        "dropped": 16,
        "rows": [{"dropped": 0}],
    }


def test_a_slow_reader_is_bounded_in_bytes() -> None:
    """The newest message stays, whatever its size."""
    watcher = Watcher(bytes_max=1_000)
    for seq in range(10):
        watcher.put(message(seq, 300))
    assert seqs(watcher) == [8, 9] or watcher.dropped == 7
    watcher.put(message(10, 5_000))
    assert seqs(watcher) == [10]


def test_a_reader_that_keeps_up_loses_nothing() -> None:
    """However much goes through: the books of its size are right."""
    watcher = Watcher(messages_max=4, bytes_max=1_000)
    for seq in range(1_000):
        watcher.put(message(seq, 200))
        assert seqs(watcher) == [seq]
    assert watcher.dropped == 0


async def test_a_reader_sleeps_until_there_is_something() -> None:
    """A message wakes it, and so does its end; what waited may still be read."""
    watcher = Watcher()
    waiting = asyncio.create_task(watcher.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    watcher.put(message(1))
    await waiting
    watcher.end(1012, "over")
    await watcher.wait()
    assert seqs(watcher) == [1]
    assert watcher.goodbye == (1012, "over")
