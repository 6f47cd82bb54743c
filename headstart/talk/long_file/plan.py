"""The parts into which a recording is cut: 30 s each, 2 s of which belong to the part before too.

What is said or shown at a cut is whole in one of the two parts. No I/O.

"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

PART_S = 30.0
OVERLAP_S = 2.0
PART_S_MIN, PART_S_MAX = 5.0, 120.0
COST_S = 12.0
"""What a part costs with `small` on two cores, until one has been timed."""
_TIME = re.compile(r"(?:(\d+):)?(?:(\d+):)?(\d+(?:\.\d+)?)(s|m|min|h)?")
_UNITS_S = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Part:
    """One part, in s of the recording. `new_s`: where what no earlier part had begins."""

    index: int
    start_s: float
    end_s: float
    new_s: float

    @property
    def lasts_s(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Plan:
    """`parts` of the recording from `start_s` to `end_s`."""

    start_s: float
    end_s: float
    part_s: float = PART_S
    overlap_s: float = OVERLAP_S

    @property
    def count(self) -> int:
        beyond_s = self.end_s - self.start_s - self.part_s
        # A rest no longer than the overlap is in the last part already.
        return 1 + max(0, math.ceil(beyond_s / self.stride_s - 1e-9))

    @property
    def stride_s(self) -> float:
        return self.part_s - self.overlap_s

    def part(self, index: int) -> Part:
        """The part number `index`, from 0."""
        start_s = self.start_s + index * self.stride_s
        end_s = min(start_s + self.part_s, self.end_s)
        return Part(index, start_s, end_s, start_s + (self.overlap_s if index else 0.0))

    def cost_s(self, part_cost_s: float = COST_S) -> float:
        """About how long all of it takes."""
        return self.count * part_cost_s


class BadTime(ValueError):
    """A text that is no time."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is no time: expected seconds, M:SS, H:MM:SS, 90s, 12m or 1h")
        self.text = text


def parse_time(text: str) -> float:
    """`90`, `90s`, `1:30`, `1:02:03`, `12m` or `1h` in s. Raises `BadTime`."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise BadTime(text)
    first, second, last, unit = found.groups()
    if unit is not None and first is not None:
        raise BadTime(text)
    total_s = float(last) * _UNITS_S[unit]
    if second is not None:
        return total_s + 60 * int(second) + 3600 * int(first)
    return total_s + 60 * int(first or 0)


def clock(at_s: float) -> str:
    """A time as people write it: `0:07`, `12:30`, `1:02:03`."""
    whole = int(max(0.0, at_s) + 1e-6)
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def lasting(duration_s: float) -> str:
    """A length of time in words, rounded: `40 s`, `7 min`, `2.5 h`."""
    if duration_s < 90:
        return f"{max(1, round(duration_s))} s"
    if duration_s < 90 * 60:
        return f"{round(duration_s / 60)} min"
    return f"{duration_s / 3600:.1f} h"
