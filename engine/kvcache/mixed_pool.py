"""Block ownership where blocks are of two types, wide and narrow. Bookkeeping only.

A narrow block has as many tokens as a wide one, in fewer bytes. The memory is cut into *slabs*: so
many wide blocks, or so many narrow ones.

    blocks    [0, num_blocks)                        wide; slab i has `wide_in_slab` in sequence
              [num_blocks, ... + narrow blocks)      narrow; slab i has `narrow_in_slab`
    slab      with held blocks                       of their type: its other blocks are so too
              without held blocks                    of either type; cached blocks in it are given
                                                     up when it changes the type

A block is taken from the slab that has most blocks held, so that slabs become free again. What is
free in a slab with held blocks is of no use to the other type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from headstart.engine.errors import CacheFull
from headstart.engine.kvcache.block_pool import BlockPool, BlockTable


class MixedBlockPool(BlockPool):
    """A `BlockPool` of slabs.

    `num_blocks`, `free_blocks` and `used_blocks` count wide blocks; a slab with held narrow blocks
    counts as used. `max_cached` counts blocks of both types.
    """

    def __init__(
        self,
        slabs: int,
        in_slab: tuple[int, int],
        block_size: int,
        max_cached: int = 0,
        *,
        shares: bool = True,
    ) -> None:
        """`in_slab`: wide blocks of a slab, and narrow ones."""
        super().__init__(slabs * in_slab[0], block_size, max_cached, shares=shares)
        self._in_slab = in_slab
        self._references = [0] * (slabs * sum(in_slab))
        self._free = []  # the base's; here `_unused` and `_empty` say what is free
        self._held = [0] * slabs  # blocks with a reference
        self._unused: list[list[int]] = [[] for _ in range(slabs)]  # stacks: not held, not cached
        self._slabs_of: tuple[set[int], set[int]] = (set(), set())  # by type, not empty
        self._empty = list(range(slabs - 1, -1, -1))  # a stack: nothing is in these
        self._free_slabs = slabs  # without held blocks
        self._open = [0, 0]  # by type: blocks that are not held, in slabs with held ones

    @property
    def is_mixed(self) -> bool:
        return True

    def is_narrow(self, block: int) -> bool:
        return block >= self.num_blocks

    @property
    def free_blocks(self) -> int:
        """Wide blocks that can be allocated."""
        return self._open[False] + self._free_slabs * self._in_slab[False]

    @property
    def cached_blocks(self) -> int:
        """Narrow ones by their size, rounded down; in a slab with held blocks they are not free."""
        return self.size_of(
            [
                block
                for block in self._cached
                if not (self.is_narrow(block) and self._held[self._slab_of(block)])
            ]
        )

    def cost(self, wide: int, narrow: int) -> int:
        """Exact for one demand. Add several up before, by type: begun slabs have room once."""
        slabs = -(-max(narrow - self._open[True], 0) // self._in_slab[True])
        if not slabs:
            return wide
        return max(wide, self._open[False]) + slabs * self._in_slab[False]

    def size_of(self, blocks: Sequence[int]) -> int:
        narrow = sum(map(self.is_narrow, blocks))
        return len(blocks) - narrow + narrow * self._in_slab[False] // self._in_slab[True]

    def allocate(self, count: int) -> list[int]:
        return self.take([False] * count)

    def take(self, narrow: Sequence[bool]) -> list[int]:
        left = [len(narrow) - sum(narrow), sum(narrow)]
        needed = self.cost(*left)
        if needed > self.free_blocks:
            raise CacheFull(needed=needed, free=self.free_blocks)
        taken = []
        for each in narrow:
            block = self._unused[self._slab_for(each, left)].pop()
            self._references[block] = 1
            self._hold(block)
            left[each] -= 1
            taken.append(block)
        return taken

    def _slab_for(self, narrow: bool, left: Sequence[int]) -> int:
        """A slab of this type with an unused block, for one of the demand `left`, which fits."""
        begun = [slab for slab in self._slabs_of[narrow] if self._unused[slab]]
        held = [slab for slab in begun if self._held[slab]]
        if held:
            return max(held, key=lambda slab: (self._held[slab], -slab))
        # What follows for the rest of the demand may leave no free slab for this block alone.
        spare = self._fits_beside(narrow, left)
        if spare and begun:
            return begun[0]
        if not (spare and self._empty):
            slab_of_cached = self._give_up_for(narrow, spare)
            if slab_of_cached is not None:
                return slab_of_cached
        return self._begin(self._empty.pop(), narrow)

    def _give_up_for(self, narrow: bool, spare: bool) -> int | None:
        """Give up the oldest cached block that makes room for this type: one in a slab of the type,
        or else all that is cached in a slab without held blocks, if one can be spared. The slab
        with the unused block; None: a slab has become empty, or nothing could be given up."""
        for block in self._cached:
            slab = self._slab_of(block)
            same = slab in self._slabs_of[narrow]
            helps = same if self._held[slab] else spare
            if not helps:
                continue
            if same:
                self._give_up(block)
                return slab if slab in self._slabs_of[narrow] else None
            for other in [each for each in self._cached if self._slab_of(each) == slab]:
                self._give_up(other)
            return None
        return None

    def _fits_beside(self, narrow: bool, left: Sequence[int]) -> bool:
        """Whether the demand `left` fits if a free slab is begun for this type."""
        opened = list(self._open)
        opened[narrow] += self._in_slab[narrow]
        slabs = (
            -(-max(wanted - there, 0) // size)
            for wanted, there, size in zip(left, opened, self._in_slab, strict=True)
        )
        return sum(slabs) <= self._free_slabs - 1

    def _begin(self, slab: int, narrow: bool) -> int:
        """Make an empty slab one of this type."""
        size = self._in_slab[narrow]
        first = slab * size + (self.num_blocks if narrow else 0)
        self._unused[slab] = list(range(first + size - 1, first - 1, -1))
        self._slabs_of[narrow].add(slab)
        return slab

    def _slab_of(self, block: int) -> int:
        narrow = self.is_narrow(block)
        return (block - self.num_blocks if narrow else block) // self._in_slab[narrow]

    def _hold(self, block: int) -> None:
        """Count a block that got its first reference."""
        slab, narrow = self._slab_of(block), self.is_narrow(block)
        if not self._held[slab]:
            self._free_slabs -= 1
            self._open[narrow] += self._in_slab[narrow]
        self._held[slab] += 1
        self._open[narrow] -= 1

    def _let_go(self, block: int) -> None:
        """Count a block that lost its last reference."""
        slab, narrow = self._slab_of(block), self.is_narrow(block)
        self._held[slab] -= 1
        self._open[narrow] += 1
        if not self._held[slab]:
            self._free_slabs += 1
            self._open[narrow] -= self._in_slab[narrow]

    def release(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            assert self._references[block] > 0, f"block {block} was released twice"
            self._references[block] -= 1
            if self._references[block] > 0:
                continue
            self._let_go(block)
            if block in self._key_of:
                self._cached[block] = None
            else:
                self._put_back(block)
        while len(self._cached) > self.max_cached:
            self._give_up(next(iter(self._cached)))

    def adopt(self, key: bytes) -> int | None:
        block = super().adopt(key)
        if block is not None and self._references[block] == 1:
            self._hold(block)
        return block

    def _give_up(self, block: int) -> None:
        """Make a cached block an unused one."""
        del self._cached[block]
        self.forget(block)
        self._put_back(block)

    def _put_back(self, block: int) -> None:
        slab, narrow = self._slab_of(block), self.is_narrow(block)
        self._unused[slab].append(block)
        if len(self._unused[slab]) == self._in_slab[narrow]:
            self._unused[slab] = []
            self._slabs_of[narrow].remove(slab)
            self._empty.append(slab)

    def check_accounting(self, tables: Iterable[BlockTable]) -> None:
        self._free = [block for unused in self._unused for block in unused]
        self._check_references(tables)
        idle = Counter(map(self._slab_of, (*self._free, *self._cached)))
        for slab, held in enumerate(self._held):
            types = [narrow for narrow in (False, True) if slab in self._slabs_of[narrow]]
            assert len(types) == (slab not in self._empty), f"slab {slab} has {len(types)} types"
            assert held + idle[slab] == sum(self._in_slab[narrow] for narrow in types)
        holding = {block for block, count in enumerate(self._references) if count}
        assert (
            Counter(map(self._slab_of, holding)) == Counter(dict(enumerate(self._held))) - Counter()
        )
        for block in holding | self._cached.keys():
            assert self._slab_of(block) in self._slabs_of[self.is_narrow(block)], "blocks overlap"
        for narrow in (False, True):
            held_slabs = [slab for slab in self._slabs_of[narrow] if self._held[slab]]
            held = sum(self._held[slab] for slab in held_slabs)
            assert self._open[narrow] == len(held_slabs) * self._in_slab[narrow] - held
        assert self._free_slabs == self._held.count(0)
        self._free = []
