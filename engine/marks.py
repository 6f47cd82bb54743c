"""Places in a stream to roll back to, and which of them later cuts have spoilt."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from engine.errors import StaleMark


@dataclass(frozen=True, slots=True)
class Mark:
    """A place to roll back to: a length, good until the stream is cut below it."""

    length: int
    cuts: int  # the stream's number of cuts when the mark was made


class Cuts:
    """The cuts of one stream."""

    def __init__(self) -> None:
        self._number = 0
        # Cuts that can still spoil a mark: (number, length), both strictly increasing, because
        # a cut makes every earlier one that was not deeper redundant.
        self._deep: list[tuple[int, int]] = []

    def note(self, length: int) -> None:
        """Marks behind `length` are spoilt."""
        self._number += 1
        while self._deep and self._deep[-1][1] >= length:
            self._deep.pop()
        self._deep.append((self._number, length))

    def mark(self, length: int) -> Mark:
        return Mark(length, self._number)

    def require_good(self, mark: Mark) -> None:
        """Raises `StaleMark` if what stood at `mark` is gone since."""
        later = bisect_right(self._deep, mark.cuts, key=lambda cut: cut[0])
        # Lengths increase along the list: the first later cut is the deepest of them.
        if later < len(self._deep) and self._deep[later][1] < mark.length:
            raise StaleMark(mark.length, self._deep[later][1])
