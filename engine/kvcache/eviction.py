"""Eviction: what a stream's K/V depend on once tokens among them are gone, and the moves that
follow.

While nothing was evicted, K/V are a function of the tokens, and any stream with the same tokens may
share them. Behind an eviction they still hold what they saw of tokens that are gone, at positions
that no longer count from zero: they are of use to this stream only, as long as nothing before them
changes. `KvMove` is a plan of copies and key rotations; the memory itself is
`headstart.engine.kvcache.storage`'s.

"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from headstart.engine.kvcache.block_pool import BlockPool, BlockTable
from headstart.engine.kvcache.positions import Positions

Slots = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyRotation:
    """Keys from `sources`, each turned on by its number of positions in `shifts`, into `targets`;
    their values as they are. Both may be the same slots."""

    sources: Slots
    targets: Slots
    shifts: Slots


@dataclass(frozen=True, slots=True)
class KvMove:
    """K and V of tokens from `sources` to `targets` (which may overlap), then the turns."""

    sources: Slots
    targets: Slots
    turns: tuple[KeyRotation, ...] = ()


class KvMemory(Protocol):
    """Carries plans out (`headstart.engine.scheduling.runner.Runner`)."""

    def move(self, move: KvMove) -> None: ...


def slots_of(blocks: Sequence[int], block_size: int, indices: Slots) -> Slots:
    """Where the tokens with these indices in a stream lie, if `blocks` are its blocks."""
    at = np.asarray(blocks, dtype=np.int64)
    result: Slots = at[indices // block_size] * block_size + indices % block_size
    return result


class EvictionState:
    """Of one stream, whose `positions` it moves along with its K/V.

    `sink`: the blocks of the stream's first tokens as they were computed, from the first eviction
    behind them on: what the sink's keys are turned from, each time anew, so that roundings do not
    add up. `rigid_tokens`: moved up together; a cut among them has to begin anew.
    """

    def __init__(self, pool: BlockPool, positions: Positions) -> None:
        self.sink = BlockTable(pool)
        self.rigid_tokens = 0
        self._positions = positions
        self._sink_tokens = 0
        self._pure_tokens: int | None = None  # before the first eviction; None: there was none

    @property
    def is_whole(self) -> bool:
        """Whether all K/V are those of the tokens before them and no others."""
        return self._pure_tokens is None

    def is_pure(self, length: int) -> bool:
        """Whether the first `length` K/V are."""
        return self._pure_tokens is None or length <= self._pure_tokens

    def fork(self, positions: Positions) -> EvictionState:
        """The same for a stream that reads the same; the sink is shared."""
        other = EvictionState(self.sink.pool, positions)
        other.sink, other.rigid_tokens = self.sink.fork(), self.rigid_tokens
        other._sink_tokens, other._pure_tokens = self._sink_tokens, self._pure_tokens
        return other

    def keep(self, length: int) -> tuple[int, bool]:
        """K/V from `length` on are given back. How many can stay, and whether they are whole now,
        so that positions have to be counted anew behind them."""
        if length <= self.rigid_tokens:
            length = self.rigid_tokens = 0
            self.sink.free()
        mends = self._pure_tokens is not None and length <= self._pure_tokens
        if mends:
            self._pure_tokens = None
        return length, mends

    def delete(self, start: int, end: int) -> None:
        """Tokens [start, end) were evicted."""
        self.rigid_tokens -= max(min(end, self.rigid_tokens) - start, 0)

    def can_stand_on(self, sink: int, count: int) -> bool:
        """Whether `count` tokens can be arranged behind that sink: there is no copy of another one
        than before, and nothing stands on a rigid part that was all there is."""
        return (not self.sink.blocks or sink == self._sink_tokens) and count > self.rigid_tokens

    def arrange(
        self,
        table: BlockTable,
        kept: npt.NDArray[np.int64],
        first: int,
        sink: int,
        *,
        rejoins: bool,
    ) -> KvMove:
        """Have the tokens that were at indices `kept`, all there were before `first`, lie behind
        one another in `table`, and the first `sink` stand right before what follows them. With
        `rejoins`, everything else as well. Raises `CacheFull`, and then nothing has changed."""
        pool, size, count = table.pool, table.pool.block_size, len(kept)
        begin = 0 if sink or rejoins else first // size
        # Nobody writes into a block that somebody else holds, not even what stays in its place.
        held = list(table.blocks)
        sink_blocks = 0 if self.sink.blocks else pool.blocks_for(sink)
        blocks = range(begin, pool.blocks_for(count))
        taken_over = [i for i in blocks if i < sink_blocks or pool.is_shared(held[i])]
        fresh = dict(zip(taken_over, pool.take(len(taken_over)), strict=True))
        if sink_blocks:
            pool.share(held[:sink_blocks])
            self.sink.blocks, self._sink_tokens = held[:sink_blocks], sink
        for index in set(blocks) - fresh.keys():
            pool.forget(held[index])
        pool.give_back(held[index] for index in fresh)
        table.blocks = [fresh.get(i, block) for i, block in enumerate(held)]
        table.truncate(count)
        if self.is_pure(begin * size):
            self._pure_tokens = begin * size
        moved = np.arange(begin * size, count, dtype=np.int64)
        turns = self._turns(table, sink, rejoins)
        return KvMove(slots_of(held, size, kept[moved]), slots_of(table.blocks, size, moved), turns)

    def _turns(self, table: BlockTable, sink: int, rejoins: bool) -> tuple[KeyRotation, ...]:
        """Move what stands before gaps up to what follows it."""
        size, turns = table.pool.block_size, []
        if rejoins:
            shifts = self._positions.rejoin()
            self.rigid_tokens = len(shifts)
            own = slots_of(table.blocks, size, np.arange(sink, len(shifts)))
            turns.append(KeyRotation(own, own, shifts[sink:]))
        if sink:
            self.rigid_tokens = max(self.rigid_tokens, sink)
            shift = self._positions.beginning if rejoins else self._positions.anchor(sink)
            indices = np.arange(sink, dtype=np.int64)
            copy = slots_of(self.sink.blocks, size, indices)
            own = slots_of(table.blocks, size, indices)
            turns.append(KeyRotation(copy, own, np.full(sink, shift, dtype=np.int64)))
        return tuple(turns)
