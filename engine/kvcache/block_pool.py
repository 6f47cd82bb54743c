"""Block ownership in the paged KV cache. Bookkeeping only, without torch or tensors.

Ownership, as half-open ranges, for a stream of `len(tokens)` tokens and blocks of B tokens:

    tokens    [0, kv_len)                   K/V are in the cache
              [kv_len, len(tokens))         pending: no K/V yet
    slots     [0, kv_len)                   valid, owned by the stream
              [kv_len, len(blocks) * B)     owned but unwritten (the open end of the last block)
    blocks    [0, ceil(kv_len / B))         held by the stream between steps, never more
              [0, ceil((kv_len + n) / B))   held while a step writes n tokens
    pool      held blocks                   reference count >= 1, one per table that lists them
              cached blocks                 reference count 0, content key known, kept for reuse
                                            until the free list is empty
              all other blocks              reference count 0, in the free list exactly once

A block's number is its index along the pools' first axis; slot = block * B + offset. Blocks of a
narrow type have numbers of their own (`mixed_pool`); in this pool there are none.

A full block may have a *content key* that identifies all tokens from the stream's beginning to the
block's end (see `prefix_hash`), so equal keys mean equal K/V. A shared block is never written to:
`BlockTable.reserve` replaces it by a copy first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headstart.engine.errors import CacheFull

IsNarrow = Callable[[int], bool]
"""Whether the block at an index of a table is to be of the narrow type."""


class BlockPool:
    """Free list, reference counts and content keys of a fixed number of blocks.

    The free list is a stack that starts with block 0 on top, so that memory which was touched
    once is reused before fresh memory. At most `max_cached` unreferenced blocks are kept for their
    content; the least recently released go first. Without `shares` no content keys are kept, and
    streams never share blocks.
    """

    grows = False
    """Whether blocks are added when none is free; then nobody need be refused."""

    def __init__(
        self, num_blocks: int, block_size: int, max_cached: int = 0, *, shares: bool = True
    ) -> None:
        assert num_blocks > 0
        assert block_size > 0
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.max_cached = max_cached
        self.shares = shares
        self._free = list(range(num_blocks - 1, -1, -1))
        self._references = [0] * num_blocks
        self._key_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}
        self._cached: OrderedDict[int, None] = OrderedDict()  # oldest first

    @property
    def free_blocks(self) -> int:
        """Blocks that can be allocated, cached ones included."""
        return len(self._free) + len(self._cached)

    @property
    def used_blocks(self) -> int:
        """Blocks with at least one reference."""
        return self.num_blocks - self.free_blocks

    @property
    def cached_blocks(self) -> int:
        """Of `free_blocks`, those that are kept for their content."""
        return len(self._cached)

    @property
    def num_tokens(self) -> int:
        """Tokens that all blocks hold."""
        return self.num_blocks * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks needed for `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def allocate(self, count: int) -> list[int]:
        """Allocate `count` blocks with one reference each. Raises `CacheFull` if there are fewer;
        then none is allocated."""
        if count > self.free_blocks:
            raise CacheFull(needed=count, free=self.free_blocks)
        while len(self._free) < count:
            self._uncache_oldest()
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self._references[block] = 1
        return taken

    @property
    def is_mixed(self) -> bool:
        """Whether there are narrow blocks."""
        return False

    def is_narrow(self, block: int) -> bool:
        """Whether a block is of the narrow type."""
        return False

    def take(self, narrow: Sequence[bool]) -> list[int]:
        """Allocate blocks of these types, in this order. Raises `CacheFull`; then none is."""
        assert not any(narrow), "a pool of one type has no narrow blocks"
        return self.allocate(len(narrow))

    def cost(self, wide: int, narrow: int) -> int:
        """Free blocks that it takes to allocate so many; at most `free_blocks` if there are."""
        assert not narrow, "a pool of one type has no narrow blocks"
        return wide

    def size_of(self, blocks: Sequence[int]) -> int:
        """The memory of `blocks`, in blocks of the wide type, rounded down."""
        return len(blocks)

    def share(self, blocks: Iterable[int]) -> None:
        """Add a reference to each of `blocks`; all must be referenced already."""
        for block in blocks:
            assert self._references[block] > 0, f"block {block} is free, it cannot be shared"
            self._references[block] += 1

    def is_shared(self, block: int) -> bool:
        return self._references[block] > 1

    def references(self, block: int) -> int:
        """Number of tables that list `block`."""
        return self._references[block]

    def release(self, blocks: Iterable[int]) -> None:
        """Drop one reference to each of `blocks`; those with none left become free or cached."""
        for block in blocks:
            assert self._references[block] > 0, f"block {block} was released twice"
            self._references[block] -= 1
            if self._references[block] > 0:
                continue
            if block in self._key_of:
                self._cached[block] = None
            else:
                self._free.append(block)
        while len(self._cached) > self.max_cached:
            self._uncache_oldest()

    # --- contents --------------------------------------------------------------------------------

    def register(self, block: int, key: bytes) -> None:
        """Record the content key of a full block. Only the first block with a key is recorded."""
        assert self._references[block] > 0
        assert self._key_of.get(block, key) == key, f"block {block} has another content key"
        if self.shares and key not in self._block_of:
            self._block_of[key] = block
            self._key_of[block] = key

    def forget(self, block: int) -> None:
        """Drop the content key of `block`, which is about to be written to."""
        key = self._key_of.pop(block, None)
        if key is not None:
            del self._block_of[key]

    def key_of(self, block: int) -> bytes | None:
        """The content key of `block`, if it has one."""
        return self._key_of.get(block)

    def adopt(self, key: bytes) -> int | None:
        """The block with content key `key`, with one more reference; None if there is none."""
        block = self._block_of.get(key)
        if block is None:
            return None
        self._references[block] += 1
        self._cached.pop(block, None)
        return block

    def _uncache_oldest(self) -> None:
        block, _ = self._cached.popitem(last=False)
        self.forget(block)
        self._free.append(block)

    def check_accounting(self, tables: Iterable[BlockTable]) -> None:
        """Assert that free list, reference counts and `tables` (all tables there are) agree."""
        idle, held = self._check_references(tables)
        assert idle + held == self.num_blocks, "a block was lost"

    def _check_references(self, tables: Iterable[BlockTable]) -> tuple[int, int]:
        """All but that no block was lost; returns the blocks that are free or cached, and held."""
        held = Counter(block for table in tables for block in table.blocks)
        for block, references in enumerate(self._references):
            assert references == held[block], (
                f"block {block}: {references} references, listed by {held[block]} tables"
            )
        idle = [*self._free, *self._cached]
        assert len(set(idle)) == len(idle), "a block is in the free list twice"
        assert all(self._references[block] == 0 for block in idle)
        assert {self._key_of[block]: block for block in self._key_of} == self._block_of
        assert self._key_of.keys().isdisjoint(self._free), "a free block has a content key"
        assert self._key_of.keys() >= self._cached.keys(), "a cached block has no content key"
        assert len(self._cached) <= self.max_cached
        return len(idle), len(held)


@dataclass(frozen=True, slots=True)
class Copy:
    """A block that must be copied to another before the other is written to (copy on write)."""

    source: int
    target: int


class BlockTable:
    """The blocks of one stream, in token order."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.blocks: list[int] = []

    @property
    def capacity_tokens(self) -> int:
        return len(self.blocks) * self.pool.block_size

    def demand(self, start: int, end: int, narrow: IsNarrow | None = None) -> tuple[int, int]:
        """Wide and narrow blocks that `reserve` would allocate."""
        types = self._types(start, end, narrow)
        count = sum(types)
        return len(types) - count, count

    def reserve(self, start: int, end: int, narrow: IsNarrow | None = None) -> Copy | None:
        """Make the slots of tokens [start, end) writable; `start` is at most the table's length.

        `narrow`: the types of new blocks; None: wide. An open narrow block that is to be wide is
        replaced by a wide copy. Returns the copy that has to be made first, if any. Raises
        `CacheFull`; then nothing has changed.
        """
        at = start // self.pool.block_size
        taken = self.pool.take(self._types(start, end, narrow))
        copy = None
        if self._copies(start, narrow):
            copy = Copy(self.blocks[at], taken.pop())
            self.pool.release([copy.source])
            self.blocks[at] = copy.target
        elif start % self.pool.block_size > 0:
            self.pool.forget(self.blocks[at])
        self.blocks += taken
        return copy

    def _copies(self, start: int, narrow: IsNarrow | None) -> bool:
        """Whether writing from `start` on needs a copy of an open block: it is shared, or too
        narrow."""
        at = start // self.pool.block_size
        if start % self.pool.block_size == 0:
            return False
        too_narrow = narrow is not None and self.pool.is_narrow(self.blocks[at]) and not narrow(at)
        return too_narrow or self.pool.is_shared(self.blocks[at])

    def _types(self, start: int, end: int, narrow: IsNarrow | None) -> list[bool]:
        """Whether the blocks that `reserve` allocates are narrow; that of a copy is the last, and
        no narrower than its source."""
        new = range(len(self.blocks), self.pool.blocks_for(end))
        types = [narrow is not None and narrow(index) for index in new]
        if self._copies(start, narrow):
            at = start // self.pool.block_size
            source_narrow = self.pool.is_narrow(self.blocks[at])
            types.append(narrow is not None and source_narrow and narrow(at))
        return types

    def fork(self) -> BlockTable:
        """A second table of the same blocks, which are then shared."""
        other = BlockTable(self.pool)
        self.pool.share(self.blocks)
        other.blocks = list(self.blocks)
        return other

    def replace(self, at: int, blocks: Iterable[int]) -> None:
        """Release the blocks from index `at` on and list `blocks` instead; they are referenced
        already."""
        self.pool.release(reversed(self.blocks[at:]))
        self.blocks[at:] = blocks

    def truncate(self, num_tokens: int) -> None:
        """Release every block that lies wholly behind the first `num_tokens`."""
        # Last block first, so that the stack allocates them again in the same order.
        self.replace(self.pool.blocks_for(num_tokens), ())

    def free(self) -> None:
        self.truncate(0)
