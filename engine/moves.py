"""What has to happen to K and V in memory when a stream's books change: plans, no memory here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Slots = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Turn:
    """The sink's keys, turned from their places `sources` by `shift` positions into `targets`;
    its values as they are."""

    sources: Slots
    targets: Slots
    shift: int


@dataclass(frozen=True, slots=True)
class Move:
    """K and V of tokens from `sources` to `targets` (which may overlap), then the sink's."""

    sources: Slots
    targets: Slots
    turn: Turn | None = None


class Memory(Protocol):
    """Carries plans out (`engine.runner.Runner`)."""

    def move(self, move: Move) -> None: ...


def slots_of(blocks: Sequence[int], block_size: int, indices: Slots) -> Slots:
    """Where the tokens with these indices in a stream lie, if `blocks` are its blocks."""
    at = np.asarray(blocks, dtype=np.int64)
    result: Slots = at[indices // block_size] * block_size + indices % block_size
    return result
