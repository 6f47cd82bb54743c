import time

import pytest

from headstart.gateway.runtime.clocks import since_boot_s


def test_nobodys_setting_the_date_moves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on where it was, however far the wall clock jumps."""
    before_s = since_boot_s()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= since_boot_s() - before_s < 60


def test_a_machines_sleep_counts() -> None:
    """It has never counted less than the clock that stands still in a suspended machine."""
    awake_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    assert since_boot_s() >= awake_s
