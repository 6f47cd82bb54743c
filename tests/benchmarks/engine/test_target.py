"""Batches that follow a target, as the benchmark counts and drives them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, cast

import psutil
import pytest

from headstart.benchmarks.engine import target
from headstart.engine.models.perception.senses import ModelImageEncoder

PICTURE_MS = 60


class Clock:
    """Stands still but for the work of an encoder."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.each_ms = PICTURE_MS

    def features(self, images: Sequence[object], domains: object, *, live: bool) -> list[Any]:
        assert not live
        self.now_ns += len(images) * self.each_ms * 1_000_000
        return list(images)


def driven(monkeypatch: pytest.MonkeyPatch, target_ms: float | None) -> tuple[Clock, target.Work]:
    """An encoder whose pictures take `each_ms`, and its batches."""
    clock = Clock()
    monkeypatch.setattr("time.monotonic_ns", lambda: clock.now_ns)
    return clock, target.encoding(cast(ModelImageEncoder, clock), target_ms)


def test_batches_follow_the_time_of_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as long a picture, and half as many are taken, from the one queue."""
    clock, work = driven(monkeypatch, 400.0)
    alone = [work() for _ in range(20)]
    clock.each_ms *= 2
    busy = [work() for _ in range(20)]
    assert 320 <= alone[-1][1] <= 480
    assert 320 <= busy[-1][1] <= 480
    assert alone[-1][0] > busy[-1][0]


def test_without_a_target_all_that_wait_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the most."""
    _, work = driven(monkeypatch, None)
    assert [work() for _ in range(3)] == [(8, 8 * PICTURE_MS)] * 3


def test_the_share_within_the_band(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the batches behind those that settle; when one was first within it counts from the
    beginning."""
    monkeypatch.setattr(target, "SETTLING", 2)
    done = [(1, 50.0), (2, 100.0), (2, 100.0), (2, 119.0), (2, 121.0), (2, 79.0)]
    row = target.summary(done, 100.0)
    assert (row["within_band"], row["over_band"], row["settled_after"]) == (0.5, 0.25, 1)
    assert (row["size_p50"], row["ms_p95"]) == (2, 121.0)
    assert row["per_s"] == pytest.approx(8 / 0.419, abs=0.1)
    assert "within_band" not in target.summary(done, None)


def test_what_computes_ends_with_whoever_started_it() -> None:
    """A benchmark that is killed leaves no process behind."""
    script = (
        "import os, subprocess, sys\n"
        "from headstart.benchmarks.engine.target import COMPUTE\n"
        "argv = [sys.executable, '-c', COMPUTE, str(os.getpid())]\n"
        "print(subprocess.Popen(argv, stdout=subprocess.DEVNULL).pid, flush=True)\n"
    )
    parent = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(parent.stdout)).wait(30)


def test_what_computes_ends_if_whoever_started_it_is_gone_already() -> None:
    """Before its first look: here its parent is another process than the one it is to watch."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(30)
    compute = subprocess.Popen([sys.executable, "-c", target.COMPUTE, str(gone.pid)])
    try:
        assert compute.wait(30) == 0
    finally:
        compute.kill()


def test_never_within_the_band() -> None:
    """The smallest batch takes too long."""
    row = target.summary([(1, 500.0)] * 10, 100.0)
    assert (row["within_band"], row["over_band"], row["settled_after"]) == (0.0, 1.0, None)
