"""What K/V can stand on after evictions; that they are right is shown by `test_eviction`."""

from __future__ import annotations

import numpy as np

from headstart.engine.kvcache.block_pool import BlockPool, BlockTable
from headstart.engine.kvcache.eviction import EvictionState
from headstart.engine.kvcache.positions import Counting, Positions


def test_what_was_never_cut_is_whole() -> None:
    """Anybody with the same tokens may have it, wherever it is cut."""
    eviction = EvictionState(BlockPool(4, 4), Positions(Counting()))
    assert eviction.is_whole
    assert eviction.is_pure(1000)
    assert eviction.keep(3) == (3, False)


def test_behind_an_eviction_nothing_is_shared_until_it_is_cut() -> None:
    """From the block of the first cut on K/V are this stream's only; cut before, they are whole."""
    pool, positions = BlockPool(8, 4), Positions(Counting())
    table, tokens = BlockTable(pool), list(range(20))
    table.write(0, 20)
    positions.extend(tokens, [None] * 20)
    eviction = EvictionState(pool, positions)
    positions.delete(10, 13, tokens, [None] * 20)
    kept = np.array([i for i in range(20) if not 10 <= i < 13])
    move = eviction.arrange(table, kept, 10, 0, rejoins=False)
    assert (eviction.is_pure(8), eviction.is_pure(9)) == (True, False)
    assert move.targets.tolist() == list(range(8, 17))
    assert move.sources.tolist() == [8, 9, *range(13, 20)]
    assert move.turns == ()
    assert eviction.keep(12) == (12, False)
    assert eviction.keep(8) == (8, True)
    assert eviction.is_whole
