"""The memory of a KV cache with blocks of two types: text as floats, pictures in a byte a number.

Both types share the pools' memory (`headstart.kernels.paged_attention.storage.Narrow`);
`mixed_pool` decides what lies where.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headstart.engine.errors import BadSettings
from headstart.engine.kvcache.mixed_pool import MixedBlockPool
from headstart.engine.kvcache.storage import DTYPES, KvCache, kv_bytes_per_token
from headstart.kernels.paged_attention.storage import Narrow, decode, encode

LEAST_SLABS = 2
"""One of each type: a question about a picture needs both."""


class MixedKvCache(KvCache):
    """A `KvCache` of slabs. Rows that go in and out are floats [..., head_dim]; those of narrow
    blocks are decoded and encoded on the way. Raises `BadSettings` if two slabs do not fit."""

    narrow: Narrow

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        block_size: int,
        pool_bytes: int,
        kv_dtype: str,
        narrow_dtype: str,
    ) -> None:
        """`kv_dtype`: "fp32", or "fp64" in tests; `narrow_dtype`: "int8" or "fp8"."""
        self.narrow = Narrow.beside(DTYPES[kv_dtype], DTYPES[narrow_dtype], head_dim)
        if (
            block_size
            * kv_heads
            * head_dim
            * DTYPES[kv_dtype].itemsize
            % self.narrow.narrow_in_slab
        ):
            expected = f"a multiple of {self.narrow.narrow_in_slab} beside kv_vision_dtype"
            raise BadSettings("block_size", expected, block_size)
        per_token = kv_bytes_per_token(layers, kv_heads, head_dim, kv_dtype)
        slab_bytes = per_token * block_size * self.narrow.wide_in_slab
        self.slabs = pool_bytes // slab_bytes
        if self.slabs < LEAST_SLABS:
            expected = f"at least {LEAST_SLABS * slab_bytes}, for text and for pictures"
            raise BadSettings("kv_pool_bytes", expected, pool_bytes)
        super().__init__(
            layers=layers,
            kv_heads=kv_heads,
            head_dim=head_dim,
            block_size=block_size,
            pool_bytes=self.slabs * slab_bytes,
            kv_dtype=kv_dtype,
        )
        # A narrow block's share of its slab, which is a little more than its rows take.
        wide, narrow = self.narrow.wide_in_slab, self.narrow.narrow_in_slab
        self.narrow_bytes_per_token = per_token * wide // narrow

    def _allocate(self, kv_heads: int) -> None:
        super()._allocate(kv_heads)
        # [layers, 2, narrow blocks, kv_heads, block_size, width]; torch cannot index fp8
        self._codes = self.narrow.view(self._memory).view(torch.int8)

    def new_pool(self, max_cached_share: float, *, shares: bool) -> MixedBlockPool:
        """The pool of these blocks; `max_cached_share`: share of the wide blocks that may be kept
        without a holder."""
        in_slab = self.narrow.wide_in_slab, self.narrow.narrow_in_slab
        max_cached = int(self.num_blocks * max_cached_share)
        return MixedBlockPool(self.slabs, in_slab, self.block_size, max_cached, shares=shares)

    def copy_block(self, source: int, target: int) -> None:
        """Copy a block to one of its type, or a narrow one to a wide one."""
        source_narrow, target_narrow = source - self.num_blocks, target - self.num_blocks
        if source_narrow < 0:
            assert target_narrow < 0, "a block is not rounded by a copy"
            super().copy_block(source, target)
        elif target_narrow >= 0:
            self._codes[:, :, target_narrow] = self._codes[:, :, source_narrow]
        else:
            self._memory[:, :, target] = self._floats(self._codes[:, :, source_narrow])

    def save_block(self, block: int, num_tokens: int) -> Tensor:
        """A copy of a block's first tokens, in its type."""
        if block < self.num_blocks:
            return super().save_block(block, num_tokens)
        codes = self._codes[:, :, block - self.num_blocks, :, :num_tokens]
        return codes.clone(memory_format=torch.contiguous_format)

    def load_block(self, block: int, saved: Tensor) -> None:
        """Write what `save_block` returned into a block of the same type."""
        if block < self.num_blocks:
            super().load_block(block, saved)
        else:
            self._codes[:, :, block - self.num_blocks, :, : saved.shape[3]] = saved

    def encode(self, numbers: Tensor) -> Tensor:
        return numbers.to(self._dtype)

    def decode(self, stored: Tensor) -> Tensor:
        return stored

    def _floats(self, codes: Tensor) -> Tensor:
        return decode(codes.contiguous().view(self.narrow.dtype)).to(self._dtype)

    def _places(self, slots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whether each slot is in a narrow block, its block among those of its type, its offset."""
        blocks, offsets = slots // self.block_size, slots % self.block_size
        narrow = blocks >= self.num_blocks
        return narrow, torch.where(narrow, blocks - self.num_blocks, blocks), offsets

    def gather(self, layer: int, slots: Tensor) -> Tensor:
        """K and V at slots int64 [n], as floats: [2, n, kv_heads, head_dim]."""
        narrow, blocks, offsets = self._places(slots)
        kv_heads = self._memory.shape[3]
        out = self._memory.new_empty((len(slots), 2, kv_heads, self._head_dim))
        out[~narrow] = self._memory[layer][:, blocks[~narrow], :, offsets[~narrow]]
        out[narrow] = self._floats(self._codes[layer][:, blocks[narrow], :, offsets[narrow]])
        return out.transpose(0, 1)

    def scatter(self, layer: int, slots: Tensor, stored: Tensor) -> None:
        """Store what `gather` returned at other slots, all different."""
        narrow, blocks, offsets = self._places(slots)
        rows = stored.transpose(0, 1)  # [n, 2, kv_heads, head_dim]
        self._memory[layer][:, blocks[~narrow], :, offsets[~narrow]] = rows[~narrow]
        codes = encode(rows[narrow], self.narrow.dtype).view(torch.int8)
        self._codes[layer][:, blocks[narrow], :, offsets[narrow]] = codes

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """As of `KvCache`; codes that stay codes are copied as they are."""
        from_narrow, from_blocks, from_offsets = self._places(sources)
        to_narrow, to_blocks, to_offsets = self._places(targets)
        same = from_narrow & to_narrow
        at = from_blocks[same], from_offsets[same]
        to = to_blocks[same], to_offsets[same]
        for layer in range(self.layers):
            codes = self._codes[layer][:, at[0], :, at[1]]
            self.scatter(layer, targets[~same], self.gather(layer, sources[~same]))
            self._codes[layer][:, to[0], :, to[1]] = codes
