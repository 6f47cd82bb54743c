"""Where sound belongs whose timestamps don't begin at 0, jump, or are missing.

A file's sound is played without a break, as players do; where its timestamps leave a hole, silence
fills it, so that pictures stay beside the sound they were taken with. Times are in seconds.
"""

from __future__ import annotations

JITTER_S = 0.1
"""Timestamps that are off by less are rounded ones."""
GAP_MAX_S = 60.0
GAPS_MAX_S = 600.0
"""Longer holes, or more of them in all, are timestamps that began anew: nothing is filled."""


class Gaps:
    """Of one file. `start_s`: the timestamp at which its time begins."""

    def __init__(self, start_s: float) -> None:
        self._shift_s = -start_s
        self._expected_s = 0.0
        self._filled_s = 0.0

    def before(self, at_s: float | None, lasts_s: float) -> float:
        """How much silence belongs before the next piece of sound; `at_s` None: it bears no
        timestamp."""
        gap_s = 0.0 if at_s is None else at_s + self._shift_s - self._expected_s
        if not -JITTER_S <= gap_s <= min(GAP_MAX_S, GAPS_MAX_S - self._filled_s):
            self._shift_s -= gap_s
            gap_s = 0.0
        elif gap_s < JITTER_S:
            gap_s = 0.0
        self._filled_s += gap_s
        self._expected_s += gap_s + lasts_s
        return gap_s


def beginning_s(sound_s: float | None, pictures_s: float | None) -> float:
    """The timestamp at which a file's time begins: the earlier of its streams' first; the sound's
    alone if the two have nothing to do with each other."""
    if sound_s is None or pictures_s is None:
        return sound_s or 0.0
    return min(sound_s, pictures_s) if abs(sound_s - pictures_s) <= GAP_MAX_S else sound_s
