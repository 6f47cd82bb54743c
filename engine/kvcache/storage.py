"""The memory of the paged KV cache: one K and one V pool per layer."""

from __future__ import annotations

import torch
from torch import Tensor

from headstart.engine.errors import BadSettings
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.kernels.paged_attention.storage import Narrow, decode, encode, row_width
from headstart.kernels.rope.reference import rope

DTYPES = {
    "fp64": torch.float64,  # for tests of exactness
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.int8,
    "fp8": torch.float8_e4m3fn,
}


def kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, kv_dtype: str) -> int:
    """Bytes of one token's K and V in all layers: 2 * layers * kv_heads rows, with scales."""
    dtype = DTYPES[kv_dtype]
    return 2 * layers * kv_heads * row_width(head_dim, dtype) * dtype.itemsize


class KvCache:
    """K and V of every layer. Each pool is [num_blocks, kv_heads, block_size, width]; a row of
    `width` holds `head_dim` numbers as `headstart.kernels.paged_attention.storage` encodes them.

    `pool_bytes` is filled with as many blocks as fit, in one allocation that is never initialised:
    it is large enough to be mapped fresh from the system, so a page takes memory only once a token
    was written into it. Raises `BadSettings` if not even one block fits.
    """

    narrow: Narrow | None = None
    """The second type of blocks (`mixed_storage`); None: all are of one type."""

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        head_dim: int,
        block_size: int,
        pool_bytes: int,
        kv_dtype: str = "fp32",
    ) -> None:
        self.bytes_per_token = kv_bytes_per_token(layers, kv_heads, head_dim, kv_dtype)
        self.narrow_bytes_per_token = self.bytes_per_token
        self.bytes_per_block = self.bytes_per_token * block_size
        self.num_blocks = pool_bytes // self.bytes_per_block
        self.block_size = block_size
        self.layers = layers
        if self.num_blocks < 1:
            raise BadSettings("kv_pool_bytes", f"at least {self.bytes_per_block}", pool_bytes)
        self._dtype, self._head_dim = DTYPES[kv_dtype], head_dim
        # torch cannot index fp8
        self._raw = torch.int8 if self._dtype.itemsize == 1 else self._dtype
        self.k_pools: list[Tensor] = []
        self.v_pools: list[Tensor] = []
        self._allocate(kv_heads)

    def _allocate(self, kv_heads: int) -> None:
        width = row_width(self._head_dim, self._dtype)
        # [layers, 2, num_blocks, kv_heads, block_size, width]
        self._memory = torch.empty(
            (self.layers, 2, self.num_blocks, kv_heads, self.block_size, width), dtype=self._raw
        )
        pools = self._memory.view(self._dtype)
        self.k_pools += [pools[layer, 0] for layer in range(self.layers)]
        self.v_pools += [pools[layer, 1] for layer in range(self.layers)]

    @property
    def pool_bytes(self) -> int:
        """Address space of all pools, used or not."""
        return self.num_blocks * self.bytes_per_block

    def new_pool(self, max_cached_share: float, *, shares: bool) -> BlockPool:
        """The pool of these blocks; `max_cached_share`: share of them that may be kept without a
        holder."""
        max_cached = int(self.num_blocks * max_cached_share)
        return BlockPool(self.num_blocks, self.block_size, max_cached, shares=shares)

    def copy_block(self, source: int, target: int) -> None:
        """Copy all of a block's K and V to another block."""
        self._memory[:, :, target] = self._memory[:, :, source]

    def save_block(self, block: int, num_tokens: int) -> Tensor:
        """A copy of a block's first tokens as stored: [layers, 2, kv_heads, tokens, width]."""
        return self._memory[:, :, block, :, :num_tokens].clone(
            memory_format=torch.contiguous_format
        )

    def load_block(self, block: int, saved: Tensor) -> None:
        """Write what `save_block` returned into `block`."""
        self._memory[:, :, block, :, : saved.shape[3]] = saved

    def encode(self, numbers: Tensor) -> Tensor:
        """K or V in storage form: floats [..., head_dim] -> rows [..., width]."""
        return encode(numbers, self._dtype).view(self._raw)

    def decode(self, stored: Tensor) -> Tensor:
        """Rows of K or V in storage form -> floats [..., head_dim]; int8 and fp8 give fp32.

        Stored keys are rotated and divided by their layer's scale. The scale is the same in both
        halves of a head, so keys can be rotated further and encoded again without knowing it.
        """
        return decode(stored.contiguous().view(self._dtype))

    def gather(self, layer: int, slots: Tensor) -> Tensor:
        """K and V at slots int64 [n], in storage form: [2, n, kv_heads, width]."""
        blocks, offsets = slots // self.block_size, slots % self.block_size
        return self._memory[layer][:, blocks, :, offsets].transpose(0, 1)

    def scatter(self, layer: int, slots: Tensor, stored: Tensor) -> None:
        """Store what `gather` returned at other slots, all different."""
        blocks, offsets = slots // self.block_size, slots % self.block_size
        self._memory[layer][:, blocks, :, offsets] = stored.transpose(0, 1)

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """Copy K and V of tokens to other slots, in all layers; int64 [n] each, may overlap."""
        for layer in range(self.layers):
            self.scatter(layer, targets, self.gather(layer, sources))

    def rotate_keys(self, sources: Tensor, targets: Tensor, cos: Tensor, sin: Tensor) -> None:
        """Rotate the keys at `sources` by angles [n, head_dim / 2] and store them at `targets`,
        with their values unchanged."""
        for layer in range(self.layers):
            stored = self.gather(layer, sources)
            rotated = self.encode(rope(self.decode(stored[0]).to(cos.dtype), cos, sin))
            self.scatter(layer, targets, torch.stack((rotated, stored[1])))

    def fill(self, value: float) -> None:
        """Overwrite all of the cache, for measurements and for tests of unwritten slots."""
        self._memory.copy_(self.encode(torch.full((self._head_dim,), value)))
