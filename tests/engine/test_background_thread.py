"""The thread beside the engine's, without what it works at."""

from __future__ import annotations

import select
import threading
from collections import deque
from collections.abc import Sequence

import pytest

from headstart.engine.background_thread import BackgroundThread

PATIENCE_S = 60.0


class Rig:
    def __init__(self) -> None:
        self.waiting: deque[int] = deque()
        self.done: list[int] = []
        self.may = threading.Semaphore(0)
        self.thread = BackgroundThread[int](
            "worker", self.take, self.work, nice=3, instead="nobody works"
        )
        self.thread.start()

    def take(self) -> list[int]:
        assert self.thread.lock.locked()
        return [self.waiting.popleft()] if self.waiting else []

    def work(self, jobs: Sequence[int]) -> None:
        assert self.may.acquire(timeout=PATIENCE_S)
        if jobs[0] < 0:
            raise SystemExit
        self.done += jobs

    def put(self, *jobs: int) -> None:
        with self.thread.lock:
            self.waiting += jobs
            self.thread.notify()

    def wait(self) -> list[int]:
        assert select.select([self.thread.fileno()], [], [], PATIENCE_S)[0]
        return self.thread.collect()


def test_work_is_done_in_order_and_collected() -> None:
    """What is finished is said by a file descriptor, once."""
    rig = Rig()
    rig.put(1, 2)
    rig.may.release(2)
    found: list[int] = []
    while len(found) < 2:
        found += rig.wait()
    assert found == rig.done == [1, 2]
    assert rig.thread.collect() == []
    assert not select.select([rig.thread.fileno()], [], [], 0)[0]
    assert rig.thread.close()


def test_the_end_waits_for_what_is_under_way_only() -> None:
    """And no longer than it is told to; what still waits is never begun."""
    rig = Rig()
    rig.put(1, 2)
    while not rig.thread.current:
        threading.Event().wait(0.001)
    assert not rig.thread.close(wait_s=0.01)
    rig.may.release(2)
    assert rig.thread.close(PATIENCE_S)
    assert rig.done == [1]


def test_its_death_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """By the same descriptor, with what it was at, and in the log."""
    rig = Rig()
    rig.put(-1, 2)
    rig.may.release()
    assert rig.wait() == []
    assert rig.thread.died
    assert list(rig.thread.current) == [-1]
    assert "the worker thread died: nobody works" in caplog.text
    assert rig.thread.close(PATIENCE_S)
