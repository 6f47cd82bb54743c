"""Memory over a run: whether it still grows after everything has been used once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

S_PER_HOUR = 3600
POINTS_MIN = 8
"""With fewer points no slope is reported."""


@dataclass(frozen=True)
class Point:
    """One reading: sessions so far, and resident bytes of the two processes."""

    at_s: float
    visits: int
    gateway_bytes: int
    engine_bytes: int


@dataclass
class Memory:
    """`points` as they were read, oldest first."""

    points: list[Point] = field(default_factory=list)

    def report(self) -> dict[str, Any]:
        """`rss_slope_bytes_per_hour` of wall time over the second half of the run, for the gateway,
        with its standard error, and per hundred visits; likewise for the engine. None: too few
        points. The first half is left out because it contains allocations at first use."""
        half_s = (self.points[0].at_s + self.points[-1].at_s) / 2 if self.points else 0.0
        late = [point for point in self.points if point.at_s >= half_s]
        hours = [point.at_s / S_PER_HOUR for point in late]
        hundreds = [point.visits / 100 for point in late]
        gateway = [point.gateway_bytes for point in late]
        slope, error = slope_of(hours, gateway)
        engine_slope, engine_error = slope_of(hours, [point.engine_bytes for point in late])
        return {
            "rss_slope_bytes_per_hour": slope,
            "rss_slope_error_bytes_per_hour": error,
            "rss_slope_bytes_per_100_visits": slope_of(hundreds, gateway)[0],
            "engine_rss_slope_bytes_per_hour": engine_slope,
            "engine_rss_slope_error_bytes_per_hour": engine_error,
            "rss_points": [
                [round(p.at_s), p.visits, p.gateway_bytes, p.engine_bytes] for p in self.points
            ],
        }


def slope_of(xs: list[float], ys: list[int]) -> tuple[int | None, int | None]:
    """The least-squares slope of `ys` over `xs` and its standard error, rounded; (None, None) for
    fewer than `POINTS_MIN` points, or all at one place."""
    if len(xs) < POINTS_MIN or min(xs) == max(xs):
        return None, None
    x, y = np.array(xs, float), np.array(ys, float)
    across = x - x.mean()
    spread = float(across @ across)
    slope = float(across @ y) / spread
    left = y - y.mean() - slope * across
    return round(slope), round(math.sqrt(float(left @ left) / (len(xs) - 2) / spread))
