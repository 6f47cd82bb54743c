"""headstart.benchmarks.hearing.paired: two recognisers on the same clips."""

from __future__ import annotations

import pytest

from headstart.benchmarks.hearing.paired import Pair, compare, mcnemar_p


def pair(sentence: str, *, ours: bool, offline: bool) -> Pair:
    """Four words, one of them wrong where the clip is."""
    return Pair(sentence, 4, ours, offline, int(not ours), int(not offline))


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 5, 1.0), (0, 5, 0.0625), (1, 9, 0.021484375)],
)
def test_mcnemar(one: int, other: int, p: float) -> None:
    """The tails of the binomial distribution, whichever of the two is better."""
    assert mcnemar_p(one, other) == mcnemar_p(other, one) == pytest.approx(p)


def test_what_differs_is_counted_both_ways() -> None:
    """In percentage points, ours less offline; more words wrong have the other sign."""
    found = compare(
        [
            pair("a", ours=True, offline=False),
            pair("b", ours=False, offline=True),
            pair("c", ours=False, offline=True),
            pair("d", ours=True, offline=True),
        ]
    )
    assert (found["ours_only"], found["offline_only"]) == (1, 2)
    assert (found["points"], found["errors_points"]) == (-25.0, 6.25)
    assert found["points_low"] < -25 < found["points_high"]


def test_alike_is_no_difference() -> None:
    """The interval has no width."""
    found = compare([pair(text, ours=True, offline=True) for text in "abc"])
    assert found["points"] == found["points_low"] == found["points_high"] == 0
    assert found["mcnemar_p"] == 1


def test_clips_of_one_sentence_are_no_further_evidence() -> None:
    """The same four sentences heard ten times over leave the interval as wide as it was."""
    once = [pair(text, ours=text != "a", offline=text != "b") for text in "abcd"]
    one, ten = compare(once), compare(once * 10)
    assert (one["points_low"], one["points_high"]) == (ten["points_low"], ten["points_high"])
    assert one["points_low"] < 0 < one["points_high"]
