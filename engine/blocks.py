"""Who owns which block of the paged KV cache. No torch here: these are books, not memory.

Ownership, as half-open ranges, for a stream of `len(tokens)` tokens and blocks of B tokens:

    tokens    [0, kv_len)                   K/V are in the cache
              [kv_len, len(tokens))         pending: no K/V yet
    slots     [0, kv_len)                   valid, owned by the stream
              [kv_len, len(blocks) * B)     owned but unwritten (the open end of the last block)
    blocks    [0, ceil(kv_len / B))         held by the stream between steps, never more
              [0, ceil((kv_len + n) / B))   held while a step writes n tokens
    pool      held blocks                   reference count >= 1, one per table that lists them
              all other blocks              reference count 0, in the free list exactly once

A block's number is its index along the pools' first axis; slot = block * B + offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from engine.errors import CacheFull


class BlockPool:
    """Free list and reference counts of a fixed number of blocks.

    The free list is a stack that starts with block 0 on top, so that memory which was touched
    once is used again before fresh memory is.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        assert num_blocks > 0
        assert block_size > 0
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._free = list(range(num_blocks - 1, -1, -1))
        self._references = [0] * num_blocks

    @property
    def free_blocks(self) -> int:
        return len(self._free)

    @property
    def used_blocks(self) -> int:
        return self.num_blocks - len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def take(self, count: int) -> list[int]:
        """`count` blocks with one reference each. Raises `CacheFull` and takes none if too few."""
        if count > len(self._free):
            raise CacheFull(needed=count, free=len(self._free))
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self._references[block] = 1
        return taken

    def share(self, blocks: Iterable[int]) -> None:
        """One more reference to each of `blocks`, which must be held by somebody."""
        for block in blocks:
            assert self._references[block] > 0, f"block {block} is free, it cannot be shared"
            self._references[block] += 1

    def give_back(self, blocks: Iterable[int]) -> None:
        """Drop one reference to each of `blocks`; those with none left are free."""
        for block in blocks:
            assert self._references[block] > 0, f"block {block} was given back twice"
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free.append(block)

    def check_books(self, tables: Iterable[BlockTable]) -> None:
        """Assert that the free list, the counts and `tables` (all there are) tell one story."""
        held = Counter(block for table in tables for block in table.blocks)
        for block, references in enumerate(self._references):
            assert references == held[block], (
                f"block {block}: {references} references, listed by {held[block]} tables"
            )
        assert len(set(self._free)) == len(self._free), "a block is in the free list twice"
        assert all(self._references[block] == 0 for block in self._free)
        assert len(self._free) + len(held) == self.num_blocks, "a block was lost"


class BlockTable:
    """The blocks of one stream, in the order of its tokens."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.blocks: list[int] = []

    @property
    def capacity_tokens(self) -> int:
        return len(self.blocks) * self.pool.block_size

    def grow(self, num_tokens: int) -> None:
        """Make room for `num_tokens` in all. Raises `CacheFull` and changes nothing if short."""
        missing = self.pool.blocks_for(num_tokens) - len(self.blocks)
        if missing > 0:
            self.blocks += self.pool.take(missing)

    def truncate(self, num_tokens: int) -> None:
        """Give back every block that lies wholly behind the first `num_tokens`."""
        keep = self.pool.blocks_for(num_tokens)
        # Last block first, so that the stack hands them out again in the same order.
        self.pool.give_back(reversed(self.blocks[keep:]))
        del self.blocks[keep:]

    def free(self) -> None:
        self.truncate(0)
