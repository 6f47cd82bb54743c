"""Batches that follow a target time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.scheduling.batch_size import BAND, NS_PER_MS, BatchSize


def test_without_a_target_it_is_the_largest() -> None:
    """However long batches take."""
    size = BatchSize(8)
    size.observe(8, 10**12)
    assert size.size == 8


@given(st.integers(1, 400), st.integers(1, 100), st.integers(20, 2_000), st.integers(1, 64))
def test_it_settles_within_the_band(fixed_ms: int, each_ms: int, target_ms: int, most: int) -> None:
    """Batches that cost so much each, and so much whatever their size: soon none takes longer than
    the target and 20 %, unless the smallest does, and a larger one would leave the band or be more
    than the most."""
    size = BatchSize(most, target_ms)

    def cost(count: int) -> int:
        return (fixed_ms + each_ms * count) * NS_PER_MS

    for _ in range(80):
        size.observe(size.size, cost(size.size))
    longest = target_ms * (1 + BAND) * NS_PER_MS
    shortest = target_ms * (1 - BAND) * NS_PER_MS
    seen = []
    for _ in range(8):  # where one step is wider than the band, two sizes take turns
        seen.append(size.size)
        size.observe(size.size, cost(size.size))
    assert min(seen) == 1 or cost(min(seen)) <= longest
    assert max(seen) == most or cost(max(seen)) >= shortest
    assert max(seen) - min(seen) <= 1


def test_a_batch_that_was_not_full_asks_for_no_larger_one() -> None:
    """That few pictures take little time says nothing of many."""
    size = BatchSize(32, 100)
    size.observe(1, 40 * NS_PER_MS)
    grown = size.size
    assert grown == 2
    size.observe(1, 40 * NS_PER_MS)
    assert size.size == grown
