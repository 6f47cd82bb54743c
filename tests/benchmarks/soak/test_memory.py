"""What a soak says of memory: a slope of the second half, and how sure it is."""

from __future__ import annotations

from headstart.benchmarks.soak.memory import POINTS_MIN, Memory, Point, slope_of

MIB = 1 << 20


def points(sizes: list[int]) -> Memory:
    """One a minute, ten visits each."""
    return Memory([Point(60.0 * n, 10 * n, size, size // 2) for n, size in enumerate(sizes)])


def test_what_is_made_at_first_use_is_no_slope() -> None:
    """Growth that has ended by half-time does not count."""
    told = points([min(n, 30) * MIB for n in range(60)]).report()
    assert told["rss_slope_bytes_per_hour"] == 0
    assert told["rss_slope_error_bytes_per_hour"] == 0


def test_a_leak_is_told_by_the_hour_and_by_the_visit() -> None:
    """A MiB a minute, of the gateway; half of it of the engine."""
    told = points([n * MIB for n in range(60)]).report()
    assert told["rss_slope_bytes_per_hour"] == 60 * MIB
    assert told["rss_slope_bytes_per_100_visits"] == 10 * MIB
    assert told["engine_rss_slope_bytes_per_hour"] == 30 * MIB
    assert told["rss_points"][2] == [120, 20, 2 * MIB, MIB]


def test_a_slope_that_is_noise_is_within_its_error() -> None:
    """Up and down by a MiB is nothing like a slope."""
    slope, error = slope_of([n / 60 for n in range(60)], [(n % 2) * MIB for n in range(60)])
    assert slope is not None
    assert error is not None
    assert abs(slope) < error


def test_too_short_a_run_has_none() -> None:
    """Nor has one without a single point."""
    assert points([MIB] * POINTS_MIN).report()["rss_slope_bytes_per_hour"] is None
    assert Memory().report()["rss_points"] == []
