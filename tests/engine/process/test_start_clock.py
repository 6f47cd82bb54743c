"""Stages of a start, also in several threads."""

from __future__ import annotations

import threading

import pytest

from headstart.engine.process.start_clock import StartClock


def test_stages_are_kept_by_name_and_added_up() -> None:
    """A stage that fails is counted; one that comes twice is one."""
    clock = StartClock()
    with clock.stage("a"):
        pass
    with pytest.raises(ValueError, match="wrong"), clock.stage("b"):
        raise ValueError("wrong")
    with clock.stage("a"):
        pass
    assert list(clock.stages_s()) == ["a", "b"]
    assert all(took_s >= 0 for took_s in clock.stages_s().values())


def test_threads_may_time_at_once() -> None:
    """Stages overlap: each counts what it took itself."""
    clock = StartClock()
    both = threading.Barrier(2)

    def timed(name: str) -> None:
        with clock.stage(name):
            both.wait(timeout=30)

    threads = [threading.Thread(target=timed, args=(name,)) for name in ("x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(clock.stages_s()) == {"x", "y"}
