"""headstart.engine.asr.chunk_timing: what a chunk takes, by a clock that a test holds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from headstart.engine.asr.chunk_timing import REPEATS, ChunkTimer
from headstart.engine.asr.whisper.checkpoint import Checkpoint, load_checkpoint
from tests.engine.asr.whisper_dirs import write_whisper


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("whisper")
    write_whisper(folder)
    return load_checkpoint(folder)


class Clock:
    """Seconds that pass within each chunk, one after the other."""

    def __init__(self, *took_s: float) -> None:
        self.took_s: Iterator[float] = iter(took_s)
        self.now_s = 0.0
        self.within = itertools.cycle((False, True))

    def __call__(self) -> float:
        if next(self.within):
            self.now_s += next(self.took_s)
        return self.now_s


def test_the_median_of_a_few_chunks(checkpoint: Checkpoint) -> None:
    """One slow chunk does not decide; all of a chunk's work is done in each."""
    clock = Clock(*[0.2, 0.05, 0.05, 0.05, 0.05][:REPEATS])
    assert ChunkTimer(checkpoint, 500, clock).median_ms(100.0) == pytest.approx(50)


def test_hopeless_ears_are_not_run_on(checkpoint: Checkpoint) -> None:
    """One chunk that takes far longer than it may is enough: the start waits for no more."""
    clock = Clock(2.0)
    assert ChunkTimer(checkpoint, 500, clock).median_ms(125.0) == pytest.approx(2000)
    assert next(clock.took_s, None) is None
