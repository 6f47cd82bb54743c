"""Where a long utterance is parted at a pause, so that what was said before is heard for good.

A final pass over all of a long turn may hear a word far behind otherwise than a second ago: greedy
decoding amplifies rounding. So behind `least_s` the first clear pause ends a part of the utterance,
whose words do not change any more. Where it lies depends on the samples alone, not on the chunks
they come in, and is known only when speech has gone on: the end of a turn parts nothing. No torch.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from headstart.engine.asr.mel import SAMPLE_RATE_HZ
from headstart.engine.asr.recording import Pcm

WINDOW_SAMPLES = SAMPLE_RATE_HZ // 50
WINDOWS_PER_SECOND = SAMPLE_RATE_HZ / WINDOW_SAMPLES
_FULL_SCALE = 32768
# Of a window's squares, in steps of sixteen bits: -90 dBFS. All below is alike.
_LEAST_POWER = round(1e-9 * WINDOW_SAMPLES * _FULL_SCALE**2)


@dataclass(frozen=True)
class PauseSettings:
    """`least_s`: a part of an utterance lasts at least so long; `pause_s`: quiet between words that
    parts them, in its middle, but at most `most_s` before its end; `resume_s`: speech behind it. A
    window is quiet when its level is below `quiet_share` of the way from the tenth of the last
    `known_s` that is quietest to the tenth that is loudest, if these are `contrast_db` apart.
    """

    least_s: float = 6.0
    pause_s: float = 0.3
    most_s: float = 1.0
    resume_s: float = 0.16
    known_s: float = 3.0
    contrast_db: float = 12.0
    quiet_share: float = 0.35


@dataclass
class PauseFinder:
    """Of one utterance; `push` takes its sound in order."""

    settings: PauseSettings = field(default_factory=PauseSettings)
    _rest: Pcm = field(default_factory=lambda: np.empty(0, np.float32))
    _levels_db: deque[float] = field(default_factory=deque)
    _ordered_db: list[float] = field(default_factory=list)
    _window: int = 0  # number of the next one
    _start: int = 0  # the window in which this part begins
    _quiet: int = 0  # windows in a row
    _spoken: int = 0
    _middle: int | None = None  # of the newest pause, until it is known whether speech goes on

    def push(self, pcm: Pcm) -> list[int]:
        """Take in [samples]; the samples at which parts of the utterance turn out to end."""
        whole = np.concatenate((self._rest, pcm))
        count = len(whole) // WINDOW_SAMPLES
        self._rest = whole[count * WINDOW_SAMPLES :]
        windows = whole[: count * WINDOW_SAMPLES].reshape(count, WINDOW_SAMPLES)
        # Whole numbers: their sum is the same in any order.
        steps = np.rint(np.clip(windows, -1, 1) * _FULL_SCALE).astype(np.int64)
        found = [self._take(max(int(power), _LEAST_POWER)) for power in (steps * steps).sum(axis=1)]
        return [window * WINDOW_SAMPLES for window in found if window is not None]

    def _take(self, power: int) -> int | None:
        """The window in which a part ends, if that is known with this one's `power`."""
        rule, found = self.settings, None
        quiet = self._is_quiet(10 * math.log10(power))
        if quiet:
            self._quiet += 1
        elif quiet is False:
            if self._quiet >= rule.pause_s * WINDOWS_PER_SECOND:
                most = round(rule.most_s * WINDOWS_PER_SECOND)
                self._middle = self._window - min(self._quiet // 2, most)
            self._quiet = 0
        self._spoken = self._spoken + 1 if quiet is False else 0
        if self._middle is not None and self._spoken >= rule.resume_s * WINDOWS_PER_SECOND:
            if self._middle - self._start >= rule.least_s * WINDOWS_PER_SECOND:
                found = self._start = self._middle
            self._middle = None
        self._window += 1
        return found

    def _is_quiet(self, level_db: float) -> bool | None:
        """Whether the next window is; None where all is alike: speech without a gap, or a long
        silence."""
        self._levels_db.append(level_db)
        insort(self._ordered_db, level_db)
        if len(self._levels_db) > self.settings.known_s * WINDOWS_PER_SECOND:
            del self._ordered_db[bisect_left(self._ordered_db, self._levels_db.popleft())]
        count = len(self._ordered_db)
        low_db, high_db = self._ordered_db[count // 10], self._ordered_db[count * 9 // 10]
        if high_db - low_db < self.settings.contrast_db:
            return None
        return level_db < low_db + self.settings.quiet_share * (high_db - low_db)
