"""The parts into which a recording is cut: 30 s each, 2 s of which belong to the part before too.

What is said or shown at a cut is whole in one of the two parts. No I/O.

"""

from __future__ import annotations

import math
from dataclasses import dataclass

PART_S = 30.0
OVERLAP_S = 2.0
COST_S = 12.0
"""What a part costs with `small` on two cores, until one has been timed."""


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
