"""Places audio whose timestamps do not start at 0, jump, or are missing.

A file's audio is played without breaks, as players do. Holes in its timestamps are filled with
silence, so that images stay in sync with the audio they were recorded with. Times are in seconds.

"""

from __future__ import annotations

JITTER_S = 0.1
"""Smaller deviations of timestamps are rounding."""
GAP_MAX_S = 60.0
GAPS_MAX_S = 600.0
"""Longer holes, or more in total, mean that timestamps restarted: nothing is filled."""


class Gaps:
    """The gaps of one file. `start_s`: the timestamp at which its time begins."""

    def __init__(self, start_s: float) -> None:
        self._shift_s = -start_s
        self._expected_s = 0.0
        self._filled_s = 0.0
        self.holes: list[tuple[float, float]] = []
        """Begin and end of what was filled, in the file's time."""

    def before(self, at_s: float | None, lasts_s: float) -> float:
        """The silence to insert before the next piece of audio, in s; `at_s` None: it has no
        timestamp."""
        gap_s = 0.0 if at_s is None else at_s + self._shift_s - self._expected_s
        if not -JITTER_S <= gap_s <= min(GAP_MAX_S, GAPS_MAX_S - self._filled_s):
            self._shift_s -= gap_s
            gap_s = 0.0
        elif gap_s < JITTER_S:
            gap_s = 0.0
        if gap_s:
            self.holes.append((self._expected_s, self._expected_s + gap_s))
        self._filled_s += gap_s
        self._expected_s += gap_s + lasts_s
        return gap_s


def beginning_s(sound_s: float | None, pictures_s: float | None) -> float:
    """The timestamp at which a file's time begins: the earlier of its streams' first ones; only the
    audio's if the two are unrelated."""
    if sound_s is None or pictures_s is None:
        return sound_s or 0.0
    return min(sound_s, pictures_s) if abs(sound_s - pictures_s) <= GAP_MAX_S else sound_s
