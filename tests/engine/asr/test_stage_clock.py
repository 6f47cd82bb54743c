"""headstart.engine.asr.stage_clock: what counts for which stage."""

from __future__ import annotations

from headstart.engine.asr.stage_clock import StageClock


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
