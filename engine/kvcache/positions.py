"""Token positions on the three axes of rotary embedding: time, height, width.

A model's rule derives positions from the tokens in order, so they are a function of the tokens:
streams with a common prefix have the same positions there, and truncating a stream truncates its
positions. Text-only models count from zero. Evictions are the exception: the remaining tokens keep
their positions, which grow for as long as the stream lives.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Axes = tuple[int, int, int]  # time, height, width


class MediaKind(Enum):
    """The kind of media that a soft token was made from."""

    AUDIO = "audio"
    IMAGE = "image"
    VIDEO = "video"


class MediaPosition(NamedTuple):
    """Where in its picture or sound a soft token lies: time in position ids since the medium's
    start, row and column in the picture's merged patch grid. Sound has no offsets."""

    kind: MediaKind
    time: int = 0
    row: int = 0
    column: int = 0


MediaPositions = Sequence[MediaPosition | None]


class PositionRule(Protocol):
    """A model's position rule: a state machine that is fed the tokens in order."""

    def advance(self, token: int, media: MediaPosition | None) -> Axes:
        """Position of the next token. `media` is None for tokens of the vocabulary."""
        ...

    def snapshot(self) -> Any:
        """The current state. It can be restored any number of times."""
        ...

    def restore(self, snapshot: Any) -> None: ...


class Counting:
    """The default rule: tokens count from zero, with the same number on all axes."""

    def __init__(self) -> None:
        self._next = 0

    def advance(self, token: int, media: MediaPosition | None) -> Axes:
        at = self._next
        self._next += 1
        return at, at, at

    def snapshot(self) -> int:
        return self._next

    def restore(self, snapshot: int) -> None:
        self._next = snapshot


class _Snapshot(NamedTuple):
    """The rule's state before token `at`. A `gap` marks an eviction at that index: its state has
    advanced past the evicted tokens, so it is valid only while some token follows the gap."""

    at: int
    gap: bool
    state: Any


class Positions:
    """Positions of one stream's tokens.

    The rule's state is saved every `STRIDE` tokens, so a cut replays at most about that many.

    Evicting tokens from the middle leaves a gap in the positions: the tokens behind it keep theirs,
    because their keys are stored rotated. The first tokens (the sink) are moved up to the gap
    behind them, and all gaps are closed once the positions span too wide a range.
    """

    STRIDE = 64

    def __init__(self, rule: PositionRule) -> None:
        self._rule = rule
        self._axes = array("q")  # three numbers a token
        self._snapshots = [_Snapshot(0, False, rule.snapshot())]

    def __len__(self) -> int:
        return len(self._axes) // 3

    def extend(self, tokens: Sequence[int], media: MediaPositions) -> None:
        """Append the positions of `tokens`."""
        for token, one in zip(tokens, media, strict=True):
            self._axes.extend(self._rule.advance(token, one))
            if len(self) - self._snapshots[-1].at >= self.STRIDE:
                self._snapshots.append(_Snapshot(len(self), False, self._rule.snapshot()))

    def cut(self, length: int) -> int:
        """Truncate to `length` tokens or a little fewer (to the last saved state).

        Returns the number of tokens left; the caller then extends from that index.
        """
        assert 0 <= length <= len(self)
        while (last := self._snapshots[-1]).at > length or (last.gap and last.at == length):
            self._snapshots.pop()
        del self._axes[3 * last.at :]
        self._rule.restore(last.state)
        return last.at

    def between(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Positions int64 [3, stop - start]."""
        return np.array(self._axes[3 * start : 3 * stop], dtype=np.int64).reshape(-1, 3).T

    def delete(self, start: int, stop: int, tokens: Sequence[int], media: MediaPositions) -> None:
        """Evict tokens [start, stop). `tokens` and `media` list all tokens before the eviction.
        The tokens behind keep their positions."""
        assert start < stop <= len(self)
        gap = _Snapshot(start, True, self._state_at(stop, tokens, media))
        before = [s for s in self._snapshots if s.at < start or (s.at == start and not s.gap)]
        behind = [s._replace(at=s.at - stop + start) for s in self._snapshots if s.at > stop]
        self._snapshots = [*before, gap, *behind]
        del self._axes[3 * start : 3 * stop]

    def _state_at(self, index: int, tokens: Sequence[int], media: MediaPositions) -> Any:
        """The rule's state before token `index`."""
        now = self._rule.snapshot()
        known = [s for s in self._snapshots if s.at <= index][-1]
        self._rule.restore(known.state)
        for i in range(known.at, index):
            self._rule.advance(tokens[i], media[i])
        state = self._rule.snapshot()
        self._rule.restore(now)
        return state

    def move_up_sink(self, sink: int) -> int:
        """Move the first `sink` tokens up to the gap behind them. Returns their distance from
        where they began. To cut at or before their end afterwards, call `cut(0)`."""
        assert 0 < sink < len(self)
        gap = next(s for s in self._snapshots if s.gap and s.at == sink)
        own, follows = self.between(0, sink), self.between(sink, sink + 1)
        shift = int(follows.min() - (own.max() - own.min() + 1))
        self._shift(np.full(sink, shift - own.min(), dtype=np.int64))
        behind = [s for s in self._snapshots if s.at > sink]
        self._snapshots = [self._snapshots[0], gap, *behind]
        return shift

    @property
    def first_position(self) -> int:
        """Position of the first token."""
        return self._axes[0]

    def gaps(self) -> list[tuple[int, int]]:
        """Gaps in the positions: (index of the first token behind the gap, positions skipped)."""
        axes = self.between(0, len(self))
        sizes = [
            (s.at, int(axes[:, s.at].min() - axes[:, : s.at].max() - 1))
            for s in self._snapshots
            if s.gap and 0 < s.at < len(self)
        ]
        return [(at, size) for at, size in sizes if size > 0]

    def close_gaps(self) -> npt.NDArray[np.int64]:
        """Close all gaps (there must be one) by moving up the tokens before them.

        Returns the shift of each token before the last gap. To cut at or before that gap
        afterwards, call `cut(0)`.
        """
        gaps = self.gaps()
        end = gaps[-1][0]
        shifts = np.zeros(end, dtype=np.int64)
        for at, size in gaps:
            shifts[:at] += size
        self._shift(shifts)
        behind = [s for s in self._snapshots if s.at > end or (s.gap and s.at == end)]
        self._snapshots = [self._snapshots[0], *behind]
        return shifts

    def _shift(self, shifts: npt.NDArray[np.int64]) -> None:
        """Add `shifts` to the first tokens' positions, on all axes alike."""
        shifted = self.between(0, len(shifts)) + shifts
        self._axes[: 3 * len(shifts)] = array("q", shifted.T.ravel().tolist())
