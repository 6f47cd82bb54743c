"""How sure a difference of two quantiles is: bootstrap intervals, the same ones each time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

RESAMPLES = 1000
AT_ONCE = 50
"""Resamples that are in memory together."""
SEED = 0x5EED
OUTSIDE_PERCENT = 2.5
"""On either side of a 95 % interval."""


def rank(n: int, q: float) -> int:
    """Where the quantile `q` of `n` sorted values stands, by nearest rank. `n` is not 0."""
    return max(0, math.ceil(q * n) - 1)


def quantile(values: Values, q: float) -> float:
    at = rank(len(values), q)
    return float(np.partition(values, at)[at])


def intervals(
    a: Values, b: Values, quantiles: Sequence[float], paired: bool, random: np.random.Generator
) -> list[tuple[float, float]]:
    """The 95 % bootstrap interval of `quantile(b) - quantile(a)`, for each of `quantiles`.

    `paired`: a[i] and b[i] are of the same clip, and are drawn together.
    """
    differences = np.empty((RESAMPLES, len(quantiles)))
    for begin in range(0, RESAMPLES, AT_ONCE):
        drawn_a = random.integers(0, len(a), (AT_ONCE, len(a)))
        drawn_b = drawn_a if paired else random.integers(0, len(b), (AT_ONCE, len(b)))
        after = _quantiles(b[drawn_b], quantiles)
        differences[begin : begin + AT_ONCE] = after - _quantiles(a[drawn_a], quantiles)
    low, high = np.percentile(
        differences, [OUTSIDE_PERCENT, 100 - OUTSIDE_PERCENT], axis=0, method="inverted_cdf"
    )
    return [(float(x), float(y)) for x, y in zip(low, high, strict=True)]


def _quantiles(rows: Values, quantiles: Sequence[float]) -> Values:
    ranks = [rank(rows.shape[1], q) for q in quantiles]
    return np.partition(rows, sorted(set(ranks)), axis=1)[:, ranks]
