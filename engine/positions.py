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


class PlaceKind(Enum):
    """What a soft token was made from."""

    AUDIO = "audio"
    IMAGE = "image"
    VIDEO = "video"


class Place(NamedTuple):
    """Where in its clip a soft token belongs: position ids from the clip's start, and the place in
    the picture's merged grid. Sound has no offsets: it follows on itself."""

    kind: PlaceKind
    time: int = 0
    row: int = 0
    column: int = 0


Places = Sequence[Place | None]


class PositionRule(Protocol):
    """A model's rule, as a state that tokens are fed to in order."""

    def advance(self, token: int, place: Place | None) -> Axes:
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

    def advance(self, token: int, place: Place | None) -> Axes:
        at = self._next
        self._next += 1
        return at, at, at

    def snapshot(self) -> int:
        return self._next

    def restore(self, snapshot: int) -> None:
        self._next = snapshot


class _Snapshot(NamedTuple):
    """The rule's state in front of token `index`. Behind a `gap` what was evicted there has still
    moved it on: such a state is of use only while a token stands behind the gap."""

    index: int
    gap: bool
    state: Any


class Positions:
    """Positions of one stream's tokens. A snapshot of the rule is kept every `STRIDE` tokens, so a
    cut costs at most about that many tokens to follow again.

    Tokens that are taken out of the middle leave a gap: what stands behind it keeps its positions,
    because its keys are stored turned. The first tokens, the sink, can be moved up to a gap.
    """

    STRIDE = 64

    def __init__(self, rule: PositionRule) -> None:
        self._rule = rule
        self._axes = array("q")  # three numbers a token
        self._snapshots = [_Snapshot(0, False, rule.snapshot())]

    def __len__(self) -> int:
        return len(self._axes) // 3

    def extend(self, tokens: Sequence[int], places: Places) -> None:
        """Follow on with `tokens`."""
        for token, place in zip(tokens, places, strict=True):
            self._axes.extend(self._rule.advance(token, place))
            if len(self) - self._snapshots[-1].index >= self.STRIDE:
                self._snapshots.append(_Snapshot(len(self), False, self._rule.snapshot()))

    def cut(self, length: int) -> int:
        """Forget all behind `length` tokens, and some before it; returns how many are left. The
        caller extends by the tokens from there on."""
        assert 0 <= length <= len(self)
        while (last := self._snapshots[-1]).index > length or (last.gap and last.index == length):
            self._snapshots.pop()
        del self._axes[3 * last.index :]
        self._rule.restore(last.state)
        return last.index

    def between(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """int64 [3, stop - start]."""
        return np.array(self._axes[3 * start : 3 * stop], dtype=np.int64).reshape(-1, 3).T

    def delete(self, start: int, stop: int, tokens: Sequence[int], places: Places) -> None:
        """Tokens [start, stop) are evicted, of `tokens` with their `places`, all there were. What
        stands behind them stays where it is."""
        assert start < stop <= len(self)
        gap = _Snapshot(start, True, self._state_at(stop, tokens, places))
        before = [s for s in self._snapshots if s.index < start or (s.index == start and not s.gap)]
        behind = [s._replace(index=s.index - stop + start) for s in self._snapshots if s.index > stop]
        self._snapshots = [*before, gap, *behind]
        del self._axes[3 * start : 3 * stop]

    def _state_at(self, index: int, tokens: Sequence[int], places: Places) -> Any:
        """The rule's state in front of a token that follows on the one before."""
        now = self._rule.snapshot()
        known = [s for s in self._snapshots if s.index <= index][-1]
        self._rule.restore(known.state)
        for at in range(known.index, index):
            self._rule.advance(tokens[at], places[at])
        state = self._rule.snapshot()
        self._rule.restore(now)
        return state

    def anchor(self, sink: int) -> int:
        """Move the first `sink` tokens up to the gap behind them; returns how far they stand from
        where they began. A cut at or before their end begins anew."""
        assert 0 < sink < len(self)
        gap = next(s for s in self._snapshots if s.gap and s.index == sink)
        own, follows = self.between(0, sink), self.between(sink, sink + 1)
        shift = int(follows.min() - (own.max() - own.min() + 1))
        raised = own - own.min() + shift
        self._axes[: 3 * sink] = array("q", raised.T.ravel().tolist())
        behind = [s for s in self._snapshots if s.index > sink]
        self._snapshots = [self._snapshots[0], gap, *behind]
        return shift
