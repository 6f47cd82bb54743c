"""Eviction: removing tokens from the middle of a stream while keeping the K/V of the rest.

Before the first eviction a stream's K/V are a function of its tokens, and any stream with the same
tokens may share them. K/V behind an evicted range still depend on the evicted tokens, and their
positions no longer count from zero. Only this stream can use them, and only while nothing before
them changes.

`KvMove` is a plan of copies and key rotations. `headstart.engine.kvcache.storage` carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headstart.engine.kvcache.block_pool import BlockPool, BlockTable, IsNarrow
from headstart.engine.kvcache.positions import Positions

Slots = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeyRotation:
    """Keys at `sources`, each rotated forward by its number of positions in `shifts`, are written
    to `targets`; their values are copied unchanged. Sources and targets may be the same slots."""

    sources: Slots
    targets: Slots
    shifts: Slots


@dataclass(frozen=True, slots=True)
class KvMove:
    """Copy K and V from `sources` to `targets` (they may overlap), then apply `rotations`.

    Slots are int64 [n].
    """

    sources: Slots
    targets: Slots
    rotations: tuple[KeyRotation, ...] = ()


def slots_of(blocks: Sequence[int], block_size: int, indices: Slots) -> Slots:
    """Slots int64 [n] of the tokens at `indices` of a stream whose block table is `blocks`."""
    at = np.asarray(blocks, dtype=np.int64)
    result: Slots = at[indices // block_size] * block_size + indices % block_size
    return result


class EvictionState:
    """Eviction state of one stream. Moves the stream's `positions` together with its K/V.

    `sink`: blocks with the stream's first tokens as they were first computed, held from the first
    eviction behind them on. The sink's keys are always rotated from this copy, so that rounding
    errors do not accumulate. `rigid_tokens`: length of the prefix whose keys were rotated together;
    a cut inside it invalidates all K/V.
    """

    def __init__(self, pool: BlockPool, positions: Positions) -> None:
        self.sink = BlockTable(pool)
        self.rigid_tokens = 0
        self._positions = positions
        self._sink_tokens = 0
        self._shareable_tokens: int | None = None  # K/V before the first eviction; None: none yet

    @property
    def nothing_evicted(self) -> bool:
        """Whether nothing was evicted, so that all K/V depend on the present tokens only."""
        return self._shareable_tokens is None

    def is_shareable(self, length: int) -> bool:
        """Whether the first `length` K/V depend on the present tokens only."""
        return self._shareable_tokens is None or length <= self._shareable_tokens

    def fork(self, positions: Positions) -> EvictionState:
        """The state for a stream with the same tokens; the sink's blocks are shared."""
        other = EvictionState(self.sink.pool, positions)
        other.sink, other.rigid_tokens = self.sink.fork(), self.rigid_tokens
        other._sink_tokens, other._shareable_tokens = self._sink_tokens, self._shareable_tokens
        return other

    def truncate(self, length: int) -> tuple[int, bool]:
        """Truncate to `length` K/V.

        Returns the number of K/V that can be kept, and whether the eviction is undone by this, so
        that positions count from the tokens again.
        """
        if length <= self.rigid_tokens:
            length = self.rigid_tokens = 0
            self.sink.free()
        resets = self._shareable_tokens is not None and length <= self._shareable_tokens
        if resets:
            self._shareable_tokens = None
        return length, resets

    def delete(self, start: int, end: int) -> None:
        """Record that tokens [start, end) were evicted."""
        self.rigid_tokens -= max(min(end, self.rigid_tokens) - start, 0)

    def can_compact(self, sink: int, count: int) -> bool:
        """Whether `count` tokens can be compacted behind a sink of this length: any sink copy must
        have the same length, and some token must follow the rigid prefix."""
        return (not self.sink.blocks or sink == self._sink_tokens) and count > self.rigid_tokens

    def compact(
        self,
        table: BlockTable,
        kept: npt.NDArray[np.int64],
        first: int,
        sink: int,
        narrow: IsNarrow | None = None,
        *,
        close_gaps: bool,
    ) -> KvMove:
        """Close the holes in `table`: keep the tokens at indices `kept`, which include all before
        `first`, and move the first `sink` tokens to the positions right before their successor.
        `close_gaps` closes all other position gaps too. `narrow`: the types that the blocks are to
        have; one of another type is replaced.

        Raises `CacheFull`; then nothing has changed.
        """
        pool, size, count = table.pool, table.pool.block_size, len(kept)
        begin = 0 if sink or close_gaps else first // size
        # Shared blocks are read-only, even for tokens that keep their slot.
        held = list(table.blocks)
        sink_blocks = 0 if self.sink.blocks else pool.blocks_for(sink)
        blocks = range(begin, pool.blocks_for(count))
        types = [narrow is not None and narrow(i) for i in blocks]
        taken_over = {
            i: is_narrow
            for i, is_narrow in zip(blocks, types, strict=True)
            if i < sink_blocks
            or pool.is_shared(held[i])
            or pool.is_narrow(held[i]) is not is_narrow
        }
        fresh = dict(zip(taken_over, pool.take(list(taken_over.values())), strict=True))
        if sink_blocks:
            pool.share(held[:sink_blocks])
            self.sink.blocks, self._sink_tokens = held[:sink_blocks], sink
        for index in set(blocks) - fresh.keys():
            pool.forget(held[index])
        pool.release(held[index] for index in fresh)
        table.blocks = [fresh.get(i, block) for i, block in enumerate(held)]
        table.truncate(count)
        if self.is_shareable(begin * size):
            self._shareable_tokens = begin * size
        moved = np.arange(begin * size, count, dtype=np.int64)
        rotations = self._rotations(table, sink, close_gaps)
        sources, targets = slots_of(held, size, kept[moved]), slots_of(table.blocks, size, moved)
        return KvMove(sources, targets, rotations)

    def _rotations(self, table: BlockTable, sink: int, close_gaps: bool) -> tuple[KeyRotation, ...]:
        """Rotations that move tokens before a gap to the positions right before its end."""
        size, rotations = table.pool.block_size, []
        if close_gaps:
            shifts = self._positions.close_gaps()
            self.rigid_tokens = len(shifts)
            own = slots_of(table.blocks, size, np.arange(sink, len(shifts)))
            rotations.append(KeyRotation(own, own, shifts[sink:]))
        if sink:
            self.rigid_tokens = max(self.rigid_tokens, sink)
            positions = self._positions
            shift = positions.first_position if close_gaps else positions.move_up_sink(sink)
            indices = np.arange(sink, dtype=np.int64)
            copy = slots_of(self.sink.blocks, size, indices)
            own = slots_of(table.blocks, size, indices)
            rotations.append(KeyRotation(copy, own, np.full(sink, shift, dtype=np.int64)))
        return tuple(rotations)
