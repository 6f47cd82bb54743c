"""Two recognisers that heard the same clips: is one of them better, or is it chance?

Keys: ours_only, offline_only (clips that only one had right), mcnemar_p (exact, two-sided: how
often so uneven a split of these clips comes by chance), points, points_low, points_high
(percentage points of clips right, ours less offline; 95 % of the draws of the bootstrap),
errors_points, errors_points_low, errors_points_high (the same of the word error rates; more is
worse).

McNemar's test takes each clip for independent. Clips of one sentence are not, so the bootstrap
draws whole sentences, with all their voices and draws (cluster bootstrap).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

DRAWS = 10_000
SEED = 1
INTERVAL_PERCENT = (2.5, 97.5)


@dataclass(frozen=True)
class Pair:
    """One clip as both heard it. `words`: of what was said; `…_errors`: words wrong."""

    sentence: str
    words: int
    ours_right: bool
    offline_right: bool
    ours_errors: int
    offline_errors: int


def compare(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The module's keys."""
    ours_only = sum(pair.ours_right and not pair.offline_right for pair in pairs)
    offline_only = sum(pair.offline_right and not pair.ours_right for pair in pairs)
    right = _bootstrap(
        pairs,
        np.array([int(pair.ours_right) - int(pair.offline_right) for pair in pairs]),
        np.ones(len(pairs)),
    )
    errors = _bootstrap(
        pairs,
        np.array([pair.ours_errors - pair.offline_errors for pair in pairs]),
        np.array([pair.words for pair in pairs]),
    )
    keys = ("", "_low", "_high")
    return {
        "ours_only": ours_only,
        "offline_only": offline_only,
        "mcnemar_p": round(mcnemar_p(ours_only, offline_only), 4),
        **{f"points{key}": value for key, value in zip(keys, right, strict=True)},
        **{f"errors_points{key}": value for key, value in zip(keys, errors, strict=True)},
    }


def mcnemar_p(one: int, other: int) -> float:
    """Two-sided, exact: of `one + other` tosses of a fair coin, a split at least as uneven."""
    tosses, fewer = one + other, min(one, other)
    tail: float = sum(comb(tosses, heads) for heads in range(fewer + 1)) / 2**tosses
    return min(1.0, 2 * tail)


def _bootstrap(
    pairs: Sequence[Pair], differences: np.ndarray[Any, Any], weights: np.ndarray[Any, Any]
) -> tuple[float, float, float]:
    """The sum of the differences by that of the weights, in per cent, and its interval."""
    number = {name: i for i, name in enumerate(dict.fromkeys(pair.sentence for pair in pairs))}
    of = [number[pair.sentence] for pair in pairs]
    by_sentence = [np.bincount(of, values, len(number)) for values in (differences, weights)]
    drawn = np.random.default_rng(SEED).integers(len(number), size=(DRAWS, len(number)))
    shares = 100 * by_sentence[0][drawn].sum(axis=1) / by_sentence[1][drawn].sum(axis=1)
    low, high = np.percentile(shares, INTERVAL_PERCENT)
    share = 100 * differences.sum() / weights.sum()
    return round(float(share), 2), round(float(low), 2), round(float(high), 2)
