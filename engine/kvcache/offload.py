"""Offload: K/V of idle sessions in host memory, copied out of the pool and back byte for byte.

Only tokens are copied, not whole blocks. A full block with a known content key is stored once for
all sessions that hold it, and it is not copied back while the pool still has that content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headstart.engine.errors import CacheFull
from headstart.engine.kvcache.block_pool import BlockPool, BlockTable


class BlockMemory(Protocol):
    """The pool's memory (`headstart.engine.kvcache.storage.KvCache`)."""

    @property
    def bytes_per_token(self) -> int: ...

    @property
    def narrow_bytes_per_token(self) -> int:
        """In narrow blocks; the same where there are none."""
        ...

    def save_block(self, block: int, num_tokens: int) -> Any:
        """A copy of the K/V of the first `num_tokens` tokens of a block."""
        ...

    def load_block(self, block: int, saved: Any) -> None:
        """Write what `save_block` returned into `block`."""
        ...


@dataclass(slots=True)
class _HostBlock:
    saved: Any  # returned by `BlockMemory.save_block`
    num_bytes: int
    key: bytes | None  # content key, if known
    narrow: bool
    references: int = 1


@dataclass(frozen=True, slots=True)
class OffloadedBlocks:
    """The host copies of one table's blocks, in order."""

    blocks: tuple[_HostBlock, ...]


class HostMemory:
    """Stores at most `max_bytes` of offloaded K/V; refuses what would exceed that."""

    def __init__(self, memory: BlockMemory, pool: BlockPool, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._memory = memory
        self._pool = pool
        self._known: dict[bytes, _HostBlock] = {}

    @property
    def free_blocks(self) -> int:
        """Full blocks that still fit."""
        per_block = self._memory.bytes_per_token * self._pool.block_size
        return (self.max_bytes - self.used_bytes) // per_block

    @property
    def bytes_per_token(self) -> int:
        return self._memory.bytes_per_token

    def offload(
        self, tables: Sequence[tuple[BlockTable, int]]
    ) -> tuple[OffloadedBlocks, ...] | None:
        """Copy the given number of tokens of each table and release the table's blocks.

        Returns None, with nothing changed, if they do not all fit.
        """
        plans = [self._parts(table, num_tokens) for table, num_tokens in tables]
        new = (part for plan in plans for part in plan if not self._is_known(part[0]))
        if self.used_bytes + sum(self._bytes_of(*part) for part in new) > self.max_bytes:
            return None
        offloaded = tuple(
            OffloadedBlocks(tuple(self._hold(block, n) for block, n in plan)) for plan in plans
        )
        for table, _ in tables:
            table.free()
        return offloaded

    def _parts(self, table: BlockTable, num_tokens: int) -> list[tuple[int, int]]:
        """Each block of the table with its number of tokens."""
        size = self._pool.block_size
        return [(block, min(size, num_tokens - at * size)) for at, block in enumerate(table.blocks)]

    def _bytes_of(self, block: int, num_tokens: int) -> int:
        narrow = self._pool.is_narrow(block)
        memory = self._memory
        return num_tokens * (memory.narrow_bytes_per_token if narrow else memory.bytes_per_token)

    def _is_known(self, block: int) -> bool:
        return self._pool.key_of(block) in self._known

    def _hold(self, block: int, num_tokens: int) -> _HostBlock:
        key = self._pool.key_of(block)
        known = None if key is None else self._known.get(key)
        if known is not None:
            known.references += 1
            return known
        num_bytes, narrow = self._bytes_of(block, num_tokens), self._pool.is_narrow(block)
        held = _HostBlock(self._memory.save_block(block, num_tokens), num_bytes, key, narrow)
        self.used_bytes += num_bytes
        if key is not None:
            self._known[key] = held
        return held

    def restore(self, tables: Sequence[tuple[BlockTable, OffloadedBlocks]]) -> None:
        """Fill the empty `tables` again. Raises `CacheFull`; then nothing has changed."""
        pool = self._pool
        wanted = [held for _, offloaded in tables for held in offloaded.blocks]
        found = [None if held.key is None else pool.adopt(held.key) for held in wanted]
        try:
            pairs = zip(wanted, found, strict=True)
            types = [held.narrow for held, block in pairs if block is None]
            taken = pool.take(types[::-1])  # the last is placed first
        except CacheFull:
            pool.release(block for block in found if block is not None)
            raise
        placed = []
        for held, block in zip(wanted, found, strict=True):
            if block is None:
                block = taken.pop()
                self._memory.load_block(block, held.saved)
                if held.key is not None:
                    pool.register(block, held.key)
            placed.append(block)
        for table, offloaded in tables:
            assert not table.blocks
            table.blocks, placed = placed[: len(offloaded.blocks)], placed[len(offloaded.blocks) :]
            self.discard(offloaded)

    def cost(self, offloaded: Sequence[OffloadedBlocks]) -> int:
        """Free blocks that it takes to restore these (`BlockPool.cost`)."""
        blocks = [block for part in offloaded for block in part.blocks]
        narrow = sum(block.narrow for block in blocks)
        return self._pool.cost(len(blocks) - narrow, narrow)

    def discard(self, offloaded: OffloadedBlocks) -> None:
        """Release host copies that are no longer needed."""
        for held in offloaded.blocks:
            held.references -= 1
            if held.references == 0:
                self.used_bytes -= held.num_bytes
                if held.key is not None:
                    del self._known[held.key]

    def check_accounting(self, offloaded: Sequence[OffloadedBlocks]) -> None:
        """Assert that `offloaded`, a list of all offloaded tables, matches what is stored."""
        held = {id(block): block for one in offloaded for block in one.blocks}
        assert sum(block.num_bytes for block in held.values()) == self.used_bytes
        assert sum(len(one.blocks) for one in offloaded) == sum(b.references for b in held.values())
        assert {key: id(block) for key, block in self._known.items()} == {
            block.key: id(block) for block in held.values() if block.key is not None
        }
        assert self.used_bytes <= self.max_bytes


class OffloadSlot:
    """The host copy of one stream's K/V, if it is offloaded."""

    def __init__(self) -> None:
        self._host: HostMemory | None = None
        self.offloaded: tuple[OffloadedBlocks, ...] = ()

    def offload(self, host: HostMemory, tables: Sequence[tuple[BlockTable, int]]) -> bool:
        """Move the given number of tokens of each table to `host`. False if they do not fit; then
        nothing has changed."""
        assert not self.offloaded
        offloaded = host.offload(tables)
        if offloaded is None:
            return False
        self._host, self.offloaded = host, offloaded
        return True

    def restore(self, tables: Sequence[BlockTable]) -> None:
        """Copy everything back into the same tables. Raises `CacheFull`; then nothing changed."""
        assert self._host is not None
        self._host.restore(list(zip(tables, self.offloaded, strict=True)))
        self.offloaded = ()

    @property
    def num_blocks(self) -> int:
        """Free blocks needed to restore."""
        return 0 if self._host is None else self._host.cost(self.offloaded)

    def discard(self) -> None:
        """Drop the host copy."""
        for part in self.offloaded:
            assert self._host is not None
            self._host.discard(part)
        self.offloaded = ()
