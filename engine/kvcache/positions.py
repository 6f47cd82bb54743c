"""Where a token stands on the three axes of its rotation: time, height, width.

A model's rule derives positions from what a stream reads, token by token. So they are a function of
the tokens alone: streams that agree on a prefix agree on its positions, and whoever cuts a stream
cuts its positions with it. Text-only models count from zero. Only what was evicted from a stream
still shows in the positions of what is left, which are kept, and grow for as long as it lives.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Axes = tuple[int, int, int]  # time, height, width


class PositionKind(Enum):
    """What a soft token was made from."""

    AUDIO = "audio"
    IMAGE = "image"
    VIDEO = "video"


class Position(NamedTuple):
    """Where in its clip a soft token belongs: position ids from the clip's start, and the place in
    the picture's merged grid. Sound has no offsets: it follows on itself."""

    kind: PositionKind
    time: int = 0
    row: int = 0
    column: int = 0


PlannedPositions = Sequence[Position | None]


class PositionRule(Protocol):
    """A model's rule, as a state that tokens are fed to in order."""

    def advance(self, token: int, place: Position | None) -> Axes:
        """Position of the next token; `place` None for tokens of the vocabulary."""
        ...

    def snapshot(self) -> Any:
        """The state, to `restore` any number of times."""
        ...

    def restore(self, snapshot: Any) -> None: ...


class Counting:
    """The rule of models that need none: tokens count from zero, on all axes alike."""

    def __init__(self) -> None:
        self._next = 0

    def advance(self, token: int, place: Position | None) -> Axes:
        at = self._next
        self._next += 1
        return at, at, at

    def snapshot(self) -> int:
        return self._next

    def restore(self, snapshot: int) -> None:
        self._next = snapshot


class _Snapshot(NamedTuple):
    """The rule's state in front of token `at`. Behind a `gap` what was evicted there has still
    moved it on: such a state is of use only while a token stands behind the gap."""

    at: int
    gap: bool
    state: Any


class Positions:
    """Positions of one stream's tokens. A snapshot of the rule is kept every `STRIDE` tokens, so a
    cut costs at most about that many tokens to follow again.

    Tokens that are taken out of the middle leave a gap: what stands behind it keeps its positions,
    because its keys are stored turned. The first tokens, the sink, are moved up to the gap behind
    them, and all others once the whole has grown too wide.
    """

    STRIDE = 64

    def __init__(self, rule: PositionRule) -> None:
        self._rule = rule
        self._axes = array("q")  # three numbers a token
        self._snapshots = [_Snapshot(0, False, rule.snapshot())]

    def __len__(self) -> int:
        return len(self._axes) // 3

    def extend(self, tokens: Sequence[int], places: PlannedPositions) -> None:
        """Follow on with `tokens`."""
        for token, place in zip(tokens, places, strict=True):
            self._axes.extend(self._rule.advance(token, place))
            if len(self) - self._snapshots[-1].at >= self.STRIDE:
                self._snapshots.append(_Snapshot(len(self), False, self._rule.snapshot()))

    def cut(self, length: int) -> int:
        """Forget all behind `length` tokens, and some before it; returns how many are left. The
        caller extends by the tokens from there on."""
        assert 0 <= length <= len(self)
        while (last := self._snapshots[-1]).at > length or (last.gap and last.at == length):
            self._snapshots.pop()
        del self._axes[3 * last.at :]
        self._rule.restore(last.state)
        return last.at

    def between(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """int64 [3, stop - start]."""
        return np.array(self._axes[3 * start : 3 * stop], dtype=np.int64).reshape(-1, 3).T

    def delete(
        self, start: int, stop: int, tokens: Sequence[int], places: PlannedPositions
    ) -> None:
        """Tokens [start, stop) are evicted, of `tokens` with their `places`, all there were. What
        stands behind them stays where it is."""
        assert start < stop <= len(self)
        gap = _Snapshot(start, True, self._state_at(stop, tokens, places))
        before = [s for s in self._snapshots if s.at < start or (s.at == start and not s.gap)]
        behind = [s._replace(at=s.at - stop + start) for s in self._snapshots if s.at > stop]
        self._snapshots = [*before, gap, *behind]
        del self._axes[3 * start : 3 * stop]

    def _state_at(self, index: int, tokens: Sequence[int], places: PlannedPositions) -> Any:
        """The rule's state in front of a token that follows on the one before."""
        now = self._rule.snapshot()
        known = [s for s in self._snapshots if s.at <= index][-1]
        self._rule.restore(known.state)
        for i in range(known.at, index):
            self._rule.advance(tokens[i], places[i])
        state = self._rule.snapshot()
        self._rule.restore(now)
        return state

    def anchor(self, sink: int) -> int:
        """Move the first `sink` tokens up to the gap behind them; returns how far they stand from
        where they began. A cut at or before their end has to begin anew, with `cut(0)`."""
        assert 0 < sink < len(self)
        gap = next(s for s in self._snapshots if s.gap and s.at == sink)
        own, follows = self.between(0, sink), self.between(sink, sink + 1)
        shift = int(follows.min() - (own.max() - own.min() + 1))
        self._raise(np.full(sink, shift - own.min(), dtype=np.int64))
        behind = [s for s in self._snapshots if s.at > sink]
        self._snapshots = [self._snapshots[0], gap, *behind]
        return shift

    @property
    def beginning(self) -> int:
        """Where the first token stands."""
        return self._axes[0]

    def gaps(self) -> list[tuple[int, int]]:
        """Where positions are left out, and how many: (index of the token behind, number)."""
        axes = self.between(0, len(self))
        sizes = [
            (s.at, int(axes[:, s.at].min() - axes[:, : s.at].max() - 1))
            for s in self._snapshots
            if s.gap and 0 < s.at < len(self)
        ]
        return [(at, size) for at, size in sizes if size > 0]

    def rejoin(self) -> npt.NDArray[np.int64]:
        """Close all gaps, one at least, by moving up what stands before them; by how much, for each
        token before the last one. A cut at or before that has to begin anew, with `cut(0)`."""
        gaps = self.gaps()
        end = gaps[-1][0]
        shifts = np.zeros(end, dtype=np.int64)
        for at, size in gaps:
            shifts[:at] += size
        self._raise(shifts)
        behind = [s for s in self._snapshots if s.at > end or (s.gap and s.at == end)]
        self._snapshots = [self._snapshots[0], *behind]
        return shifts

    def _raise(self, shifts: npt.NDArray[np.int64]) -> None:
        """Add to the positions of the first tokens, on all axes alike."""
        raised = self.between(0, len(shifts)) + shifts
        self._axes[: 3 * len(shifts)] = array("q", raised.T.ravel().tolist())
