"""Where a token stands on the three axes of its rotation: time, height, width.

A model's rule derives positions from what a stream reads, token by token. So they are a function of
the tokens alone: streams that agree on a prefix agree on its positions, and whoever cuts a stream
cuts its positions with it. Text-only models need no rule; their positions count from zero.
"""

from __future__ import annotations

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


class PositionRule(Protocol):
    """A model's rule, as a state that tokens are fed to in order."""

    def advance(self, token: int, place: Place | None) -> Axes:
        """Position of the next token; `place` None for tokens of the vocabulary."""
        ...

    def snapshot(self) -> Any:
        """The state, to `restore` any number of times."""
        ...

    def restore(self, snapshot: Any) -> None: ...


class Positions:
    """Positions of one stream's tokens. A snapshot of the rule is kept every `STRIDE` tokens, so a
    cut costs at most that many tokens to follow again."""

    STRIDE = 64

    def __init__(self, rule: PositionRule) -> None:
        self._rule = rule
        self._axes: list[Axes] = []
        self._snapshots = [rule.snapshot()]

    def __len__(self) -> int:
        return len(self._axes)

    def extend(self, tokens: Sequence[int], places: Sequence[Place | None]) -> None:
        """Follow on with `tokens`."""
        for token, place in zip(tokens, places, strict=True):
            self._axes.append(self._rule.advance(token, place))
            if len(self._axes) % self.STRIDE == 0:
                self._snapshots.append(self._rule.snapshot())

    def cut(self, length: int) -> int:
        """Forget all behind `length` tokens, and some before it; returns how many are left. The
        caller extends by the tokens from there on."""
        assert 0 <= length <= len(self._axes)
        strides = length // self.STRIDE
        del self._snapshots[strides + 1 :]
        del self._axes[strides * self.STRIDE :]
        self._rule.restore(self._snapshots[-1])
        return len(self._axes)

    def between(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """int64 [3, stop - start]."""
        return np.array(self._axes[start:stop], dtype=np.int64).reshape(-1, 3).T
