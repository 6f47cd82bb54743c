"""Plans for K and V in memory."""

from __future__ import annotations

import numpy as np

from headstart.engine.kvcache.eviction import slots_of


def test_a_slot_is_block_times_size_plus_offset() -> None:
    """Tokens lie in their stream's blocks in order, wherever the blocks are."""
    slots = slots_of([7, 2, 5], 4, np.array([0, 3, 4, 9]))
    assert slots.tolist() == [28, 31, 8, 21]
