"""What steps took, added up between two reports."""

from __future__ import annotations

from headstart.engine.api import STEP_SECONDS_LE, StepStats
from headstart.engine.scheduling.step_log import DURATIONS_KEPT, StepLog

MS = 1_000_000


def test_steps_add_up_until_they_are_taken() -> None:
    """Counts and sums are exact, percentiles by nearest rank; then it begins anew."""
    log = StepLog()
    for ms in range(1, 101):
        log.add(ms * MS, sessions=2, queue=ms % 5, prefill_tokens=3, decode_tokens=1)
    taken = log.take()
    assert taken == StepStats(100, 5050.0, 50.0, 95.0, 100.0, 300, 100, 200, 4)
    assert taken.sessions_mean == 2
    assert log.take() == StepStats()


def test_no_steps_are_no_durations() -> None:
    """Null, and not 0 ms."""
    taken = StepLog().take()
    assert (taken.count, taken.p50_ms, taken.sessions_mean) == (0, None, None)


def test_a_log_that_nobody_takes_is_bounded() -> None:
    """A gateway that is gone does not ask: counts stay right, and memory small."""
    log = StepLog()
    for _ in range(3 * DURATIONS_KEPT):
        log.add(MS, sessions=1)
    log.add(9 * MS, sessions=1)
    assert len(log._durations_ns) == DURATIONS_KEPT
    taken = log.take()
    assert (taken.count, taken.max_ms) == (3 * DURATIONS_KEPT + 1, 9.0)


def test_a_clock_that_goes_back_makes_no_negative_step() -> None:
    """It counts as none."""
    log = StepLog()
    log.add(-5 * MS, sessions=1)
    assert log.take().max_ms == 0


def test_totals_are_of_all_steps_by_what_was_in_them() -> None:
    """Taking what is recent does not take from them; an edge belongs to its bucket."""
    log = StepLog()
    log.add(5_000_000, sessions=1, prefill_tokens=4)
    log.take()
    log.add(6_000_000, sessions=2, decode_tokens=2)
    log.add(20_000_000_000, sessions=2, prefill_tokens=2000, decode_tokens=1)
    log.add(1, sessions=0)
    totals = log.totals()
    assert {phase: c.buckets.index(1) for phase, c in totals.seconds.items()} == {
        "prefill": 0,
        "decode": 1,
        "mixed": len(STEP_SECONDS_LE),
        "other": 0,
    }
    assert totals.tokens["prefill"].sum == 2004
    assert sum(totals.tokens["decode"].buckets) == 2
    assert totals.sessions is not None
    assert totals.sessions.buckets[:2] == [2, 2]
