"""What K/V can stand on after evictions; that they are right is shown by `test_eviction`."""

from __future__ import annotations

import numpy as np

from headstart.engine.kvcache.block_pool import BlockPool, BlockTable
from headstart.engine.kvcache.eviction import EvictionState
from headstart.engine.kvcache.positions import Counting, Positions


def test_what_was_never_cut_is_whole() -> None:
    """Anybody with the same tokens may have it, wherever it is cut."""
    eviction = EvictionState(BlockPool(4, 4), Positions(Counting()))
    assert eviction.nothing_evicted
    assert eviction.is_shareable(1000)
    assert eviction.truncate(3) == (3, False)


def test_behind_an_eviction_nothing_is_shared_until_it_is_cut() -> None:
    """From the block of the first cut on K/V are this stream's only; cut before, they are whole."""
    pool, positions = BlockPool(8, 4), Positions(Counting())
    table, tokens = BlockTable(pool), list(range(20))
    table.reserve(0, 20)
    positions.extend(tokens, [None] * 20)
    eviction = EvictionState(pool, positions)
    positions.delete(10, 13, tokens, [None] * 20)
    kept = np.array([i for i in range(20) if not 10 <= i < 13])
    move = eviction.compact(table, kept, 10, 0, close_gaps=False)
    assert (eviction.is_shareable(8), eviction.is_shareable(9)) == (True, False)
    assert move.targets.tolist() == list(range(8, 17))
    assert move.sources.tolist() == [8, 9, *range(13, 20)]
    assert move.rotations == ()
    assert eviction.truncate(12) == (12, False)
    assert eviction.truncate(8) == (8, True)
    assert eviction.nothing_evicted
