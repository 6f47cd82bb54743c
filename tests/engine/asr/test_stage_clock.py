"""headstart.engine.asr.stage_clock: what counts for which stage."""

from __future__ import annotations

from unittest.mock import patch

from headstart.engine.asr.stage_clock import StageClock
from headstart.engine.asr.whisper.pieces import Pieces, drain


def test_time_adds_up_by_stage() -> None:
    """A stage entered twice has both times; one never entered has none."""
    clock = StageClock()
    with clock.stage("encode"):
        pass
    once_ms = clock.spent_ms["encode"]
    with clock.stage("encode"):
        pass
    assert clock.spent_ms["encode"] > once_ms > 0.0
    assert clock.spent_ms["decode"] == 0.0


def test_what_is_done_between_pieces_does_not_count() -> None:
    """Only the time from each resumption to the next yield does, and the result comes through."""
    now_ns = 0

    def work() -> Pieces[str]:
        nonlocal now_ns
        now_ns += 2_000_000
        yield
        now_ns += 3_000_000
        return "done"

    clock = StageClock()
    pieces = clock.pieces("decode", work())
    with patch("time.perf_counter_ns", lambda: now_ns):
        next(pieces)
        now_ns += 100_000_000
        assert drain(pieces) == "done"
    assert clock.spent_ms["decode"] == 5.0
