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
    """Keys from `sources`, each turned on by its number of positions in `shifts`, into `targets`;
    their values as they are. Both may be the same slots."""

    sources: Slots
    targets: Slots
    shifts: Slots


@dataclass(frozen=True, slots=True)
class Move:
    """K and V of tokens from `sources` to `targets` (which may overlap), then the turns."""

    sources: Slots
    targets: Slots
    turns: tuple[Turn, ...] = ()


class Memory(Protocol):
    """Carries plans out (`engine.runner.Runner`)."""

    def move(self, move: Move) -> None: ...


def slots_of(blocks: Sequence[int], block_size: int, indices: Slots) -> Slots:
    """Where the tokens with these indices in a stream lie, if `blocks` are its blocks."""
    at = np.asarray(blocks, dtype=np.int64)
    result: Slots = at[indices // block_size] * block_size + indices % block_size
    return result
