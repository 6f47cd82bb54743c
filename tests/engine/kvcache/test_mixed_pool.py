"""Blocks of two types: nobody's overlap, none is lost, and what fits is given.

The machine of `test_sharing`, with pictures among the words, on slabs.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from headstart.engine.errors import CacheFull
from headstart.engine.kvcache.block_pool import BlockTable
from headstart.engine.kvcache.mixed_pool import MixedBlockPool
from headstart.engine.kvcache.offload import HostMemory
from headstart.engine.kvcache.positions import MediaKind, MediaPosition
from headstart.engine.kvcache.token_stream import Stream
from tests.engine.kvcache.test_sharing import SIZE, STREAMS, Sharing, which

IN_SLAB = 2, 5
SLABS = 10
# Words are 0 and 1, and 2 and 3 stand for parts of pictures.
mixed_words = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=4).map(
    lambda runs: [word for word, count in runs for _ in range(count)]
)


class MixedSharing(Sharing):
    """Streams of words and pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed = MixedBlockPool(SLABS, IN_SLAB, SIZE, max_cached=6)
        self.pool = self.mixed
        self.slots = [()] * (SLABS * sum(IN_SLAB) * SIZE)
        self.host = HostMemory(self, self.pool, 40 * self.bytes_per_token)
        self.streams = [self.new() for _ in range(STREAMS)]

    narrow_bytes_per_token = 3

    def pictured(self, stream: Stream, words: list[int]) -> list[int]:
        places = [MediaPosition(MediaKind.IMAGE)] * 2
        ids = stream.soft.intern(np.eye(2, dtype=np.float32), places)
        return [word if word < 2 else ids[word - 2] for word in words]

    @rule(at=which, words=mixed_words, start=st.integers(0, 40))
    def look(self, at: int, words: list[int], start: int) -> None:
        stream = self.there(at)
        stream.reconcile(self.pictured(stream, words), min(start, len(stream)))

    @invariant()
    def the_books_are_exact(self) -> None:
        self.pool.check_accounting([stream.table for stream in self.streams])
        self.host.check_accounting(
            [part for stream in self.streams for part in stream.offload_slot.offloaded]
        )
        for stream in self.streams:
            if not stream.offload_slot.offloaded:
                assert len(stream.table.blocks) == self.pool.blocks_for(stream.kv_len)

    @invariant()
    def words_are_never_in_narrow_blocks(self) -> None:
        for stream in self.streams:
            for index, block in enumerate(stream.table.blocks):
                if self.mixed.is_narrow(block):
                    part = stream.tokens[index * SIZE : min((index + 1) * SIZE, stream.kv_len)]
                    assert all(map(stream.soft.is_picture, part))


TestMixedSharing = MixedSharing.TestCase
TestMixedSharing.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("seed", range(8))
def test_a_demand_is_met_if_and_only_if_there_are_slabs_for_it(seed: int) -> None:
    """Random demands of both types on a pool with cached blocks: met exactly when the blocks that
    are not held, and slabs for the rest, suffice; what is not met changes nothing."""
    chance = random.Random(seed)
    pool = MixedBlockPool(6, (3, 7), 4, max_cached=20)
    held: list[int] = []
    keys = 0
    refused = 0
    for _ in range(600):
        table = BlockTable(pool)
        table.blocks = held
        if held and chance.random() < 0.55:
            chance.shuffle(held)
            count = chance.randint(1, len(held))
            for block in held[:count]:
                if chance.random() < 0.7:
                    pool.register(block, keys.to_bytes(16, "big"))
                    keys += 1
            pool.release(held[:count])
            del held[:count]
        else:
            demand = [chance.random() < 0.5 for _ in range(chance.randint(1, 12))]
            fits = _fits(held, demand)
            try:
                taken = pool.take(demand)
            except CacheFull:
                assert not fits
                refused += 1
            else:
                assert fits
                assert list(map(pool.is_narrow, taken)) == demand
                held += taken
        pool.check_accounting([table])
    assert 20 < refused < 400
    pool.release(held)
    held.clear()
    assert pool.free_blocks == pool.num_blocks


def _fits(held: list[int], demand: list[bool]) -> bool:
    """Counted from the held blocks alone: 6 slabs of 3 wide or 7 narrow ones."""
    slabs: dict[int, int] = {}
    types: dict[int, bool] = {}
    for block in held:
        narrow = block >= 18
        slab = (block - 18) // 7 if narrow else block // 3
        slabs[slab] = slabs.get(slab, 0) + 1
        types[slab] = narrow
    needed = 0
    for narrow, size in ((False, 3), (True, 7)):
        room = sum(size - count for slab, count in slabs.items() if types[slab] is narrow)
        needed += -(-max(demand.count(narrow) - room, 0) // size)
    return needed <= 6 - len(slabs)


def test_a_begun_slab_is_filled_before_another_is_begun() -> None:
    """Forty narrow blocks and as many wide take no slab more than they must, and blocks given back
    are used again first."""
    pool = MixedBlockPool(20, (5, 16), 4)
    narrow, wide = pool.take([True] * 40), pool.take([False] * 20)
    assert pool.free_blocks == (20 - 3 - 4) * 5
    pool.release([*narrow[:3], *wide[:2]])
    again = pool.take([True, False, True, False, True])
    assert {block for block in again if pool.is_narrow(block)} == set(narrow[:3])
    assert {block for block in again if not pool.is_narrow(block)} == set(wide[:2])
    assert pool.size_of([*narrow, *wide]) == 20 + 40 * 5 // 16


def kept(pool: MixedBlockPool) -> int:
    """Blocks of both types that nobody holds and that have a content."""
    count = pool.num_blocks * 3  # of slabs of two wide or four narrow ones
    return sum(pool.key_of(b) is not None and not pool.references(b) for b in range(count))


def test_cached_blocks_are_a_part_of_the_free_ones() -> None:
    """Used, cached and free ones add up to all: narrow blocks count by their size, and beside held
    ones, whose slab counts as used, not at all."""
    pool = MixedBlockPool(3, (2, 4), 4, max_cached=8)
    blocks = pool.take([True] * 8 + [False] * 2)
    for number, block in enumerate(blocks):
        pool.register(block, bytes([number]))
    pool.release([*blocks[:3], blocks[8]])
    assert (pool.used_blocks, pool.free_blocks, pool.cached_blocks) == (2 + 2 + 1, 1, 1)
    pool.release([blocks[3]])
    assert (pool.used_blocks, pool.free_blocks, pool.cached_blocks) == (2 + 1, 1 + 2, 1 + 2)
    assert kept(pool) == 5


def test_cached_blocks_stay_while_there_is_other_room() -> None:
    """What nobody holds is given up only when a demand needs it, and then the oldest."""
    pool = MixedBlockPool(2, (2, 4), 4, max_cached=8)
    blocks = pool.take([True, True, True])
    for number, block in enumerate(blocks):
        pool.register(block, bytes([number]))
    pool.release(blocks)
    assert kept(pool) == 3
    wide = pool.take([False, False])  # the other slab
    assert kept(pool) == 3
    assert pool.adopt(bytes([2])) == blocks[2]
    pool.take([True])  # the one block that nothing is in
    assert kept(pool) == 2
    pool.take([True])
    assert (pool.adopt(bytes([0])), pool.adopt(bytes([1]))) == (None, blocks[1])
    with pytest.raises(CacheFull):
        pool.take([False])
    pool.release(wide)
    assert pool.take([True] * 4)
