"""What others count is shown under its name."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from headstart.gateway.telemetry import names
from headstart.gateway.telemetry.collectors import BuildCollector, CountsCollector, LagCollector
from headstart.gateway.telemetry.loop_lag import LoopLag


def test_counts_by_label_and_without() -> None:
    """They are looked at when the page is asked for."""
    registry, counts = CollectorRegistry(), {"engine": 2}
    registry.register(CountsCollector(names.CHILD_RESTARTS, lambda: counts))
    registry.register(CountsCollector(names.SESSIONS_STUCK, lambda: {"": 3}))
    counts["voice"] = 1
    value = registry.get_sample_value
    assert value("headstart_child_restarts_total", {"child": "engine"}) == 2
    assert value("headstart_child_restarts_total", {"child": "voice"}) == 1
    assert value("headstart_sessions_stuck_total") == 3


def test_the_loops_lag_is_a_histogram() -> None:
    """Of all timers since the start, not only of those that percentiles are of."""
    registry, lag = CollectorRegistry(), LoopLag()
    registry.register(LagCollector(lag))
    for lag_s in (-0.001, 0.005, 0.03, 20.0):
        lag.add(lag_s, 0.0)
    value = registry.get_sample_value
    assert value("headstart_loop_lag_seconds_bucket", {"le": "0.005"}) == 2
    assert value("headstart_loop_lag_seconds_bucket", {"le": "0.04"}) == 3
    assert value("headstart_loop_lag_seconds_count") == 4
    assert value("headstart_loop_lag_seconds_sum") == pytest.approx(20.035)


def test_the_build_says_what_runs() -> None:
    """The model is known only when the engine has said so."""
    registry, model = CollectorRegistry(), ["small"]
    registry.register(BuildCollector(lambda: model[0]))
    model[0] = "tiny"
    (family,) = registry.collect()
    assert family.samples[0].name == "headstart_build_info"
    assert family.samples[0].labels["model"] == "tiny"
    assert family.samples[0].labels["version"]
