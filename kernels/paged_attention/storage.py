"""How K and V lie in a pool: as floats, or a byte a number with one scale for each row.

A *row* is one token's K or V of one head. A pool of floats has rows of `head_dim` of them. A pool
of int8 or fp8 (e4m3) has rows of `head_dim` codes and, behind them, SCALE_BYTES that are the row's
fp32 scale:

    scale = max |x| / LARGEST        code = round(x / scale), ties to even        x ~ code * scale

Each row is encoded separately. A scale per block would change with each token, and the stored bytes
would depend on how the input was split.

A pool of floats may also hold blocks of codes (`Narrow`): the same memory read as blocks of either
type, whose owner sees to it that no two blocks in use overlap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SCALE_BYTES = 4
NARROW_IN_SLAB = 64
LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}


def row_width(head_dim: int, dtype: torch.dtype) -> int:
    """Elements of `dtype` in one row, which is the size of a pool's last axis."""
    return head_dim + SCALE_BYTES if dtype in LARGEST else head_dim


def head_dim_of(pool: Tensor) -> int:
    """Numbers encoded in one row of a pool; below 1 if it is too narrow to be a pool."""
    return pool.shape[-1] - (SCALE_BYTES if pool.dtype in LARGEST else 0)


def encode(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows [..., head_dim] of floats -> rows [..., row_width] of `dtype`.

    A row with a NaN or an infinity gets a scale that makes all of it NaN, or zeros and NaN.
    """
    if dtype not in LARGEST:
        return x.to(dtype)
    x = x.float()
    scale = x.abs().amax(dim=-1, keepdim=True) / LARGEST[dtype]
    usable = scale.isfinite() & (scale > 0)
    scaled = torch.where(usable, x / torch.where(usable, scale, 1.0), 0.0)
    # A scale below fp32's normal numbers is rounded itself, and may be too small by half.
    scaled = scaled.clamp(-LARGEST[dtype], LARGEST[dtype])
    codes = scaled.round().to(dtype) if dtype == torch.int8 else scaled.to(dtype)
    return torch.cat((codes.view(torch.int8), scale.contiguous().view(torch.int8)), -1).view(dtype)


def decode(rows: Tensor) -> Tensor:
    """Rows of a pool -> floats [..., head_dim]; int8 and fp8 give fp32, others are unchanged."""
    if rows.dtype not in LARGEST:
        return rows
    head_dim = head_dim_of(rows)
    raw = rows.view(torch.int8)
    scale = raw[..., head_dim:].contiguous().view(torch.float32)
    return raw[..., :head_dim].contiguous().view(rows.dtype).float() * scale


@dataclass(frozen=True, slots=True)
class Narrow:
    """A second type of blocks in pools of floats.

    A *slab* is memory of `wide_in_slab` blocks of the pool's own type, or of `narrow_in_slab` of
    `dtype`, from its first byte on at equal distances. Block numbers from the pool's num_blocks on
    are narrow: of n blocks, block n + i is the i-th narrow one.
    """

    dtype: torch.dtype
    wide_in_slab: int
    narrow_in_slab: int

    @classmethod
    def beside(cls, wide: torch.dtype, dtype: torch.dtype, head_dim: int) -> Narrow:
        """Slabs for blocks of `dtype` among those of `wide`, of at most `NARROW_IN_SLAB`."""
        wide_bytes = head_dim * wide.itemsize
        count = -(-NARROW_IN_SLAB * row_width(head_dim, dtype) // wide_bytes)
        common = math.gcd(count, NARROW_IN_SLAB)
        return cls(dtype, count // common, NARROW_IN_SLAB // common)

    def num_blocks(self, pool: Tensor) -> int:
        """Narrow blocks in the memory of a pool [..., num_blocks, kv_heads, block_size, width]."""
        return pool.shape[-4] // self.wide_in_slab * self.narrow_in_slab

    def stride_bytes(self, pool: Tensor) -> int:
        """From one narrow block to the next."""
        wide_bytes = pool.stride(-4) * pool.element_size()
        return wide_bytes * self.wide_in_slab // self.narrow_in_slab

    def view(self, pool: Tensor) -> Tensor:
        """A pool's memory as narrow blocks: [..., num_blocks, kv_heads, block_size, width].

        The pool's last four axes are contiguous; before them there may be more.
        """
        kv_heads, block_size, head_dim = pool.shape[-3:]
        width, raw = row_width(head_dim, self.dtype), pool.view(torch.int8)
        return raw.as_strided(
            (*pool.shape[:-4], self.num_blocks(pool), kv_heads, block_size, width),
            (*raw.stride()[:-4], self.stride_bytes(pool), block_size * width, width, 1),
        ).view(self.dtype)

    def rounded(self, heads: Tensor) -> Tensor:
        """Floats as a narrow block gives them back."""
        return decode(encode(heads, self.dtype)).to(heads.dtype)


def blocks_in(pool: Tensor, narrow: Narrow | None) -> int:
    """Block numbers that there are, of both types."""
    return pool.shape[0] + (narrow.num_blocks(pool) if narrow else 0)


def store(
    pool: Tensor,
    heads: Tensor,
    slots: Tensor,
    narrow: Narrow | None = None,
    coded: Tensor | None = None,
) -> None:
    """Store heads [rows, kv_heads, head_dim] at slot = block * block_size + offset, in place.

    `coded` bool [rows]: rows that are rounded to the narrow type wherever they lie, so that what is
    read does not depend on their block's type.
    """
    block_size = pool.shape[2]
    blocks = slots.div(block_size, rounding_mode="floor")
    offsets = slots.remainder(block_size)
    if narrow is not None:
        is_narrow = blocks >= pool.shape[0]
        # From what was computed: rounded floats need not give the same scale again.
        codes = _indexable(encode(heads[is_narrow], narrow.dtype))
        at, offset = blocks[is_narrow] - pool.shape[0], offsets[is_narrow]
        _indexable(narrow.view(pool))[at, :, offset] = codes
        if coded is not None:
            heads = torch.where(coded[:, None, None], narrow.rounded(heads), heads)
        heads, blocks, offsets = heads[~is_narrow], blocks[~is_narrow], offsets[~is_narrow]
    _indexable(pool)[blocks, :, offsets] = _indexable(encode(heads, pool.dtype))


def gather(pool: Tensor, blocks: Tensor, tokens: int, narrow: Narrow | None = None) -> Tensor:
    """The first `tokens` tokens in blocks int64 [n] -> [kv_heads, tokens, head_dim], decoded."""
    if narrow is not None:
        floats = pool.new_empty((len(blocks), *pool.shape[1:]))
        is_narrow = blocks >= pool.shape[0]
        floats[~is_narrow] = pool[blocks[~is_narrow]]
        codes = _indexable(narrow.view(pool))[blocks[is_narrow] - pool.shape[0]]
        floats[is_narrow] = decode(codes.view(narrow.dtype)).to(pool.dtype)
        return floats.transpose(0, 1).flatten(1, 2)[:, :tokens]
    # [n, kv_heads, block_size, width] -> [kv_heads, tokens, width]
    rows = _indexable(pool)[blocks].transpose(0, 1).flatten(1, 2)[:, :tokens]
    return decode(rows.contiguous().view(pool.dtype))


def _indexable(rows: Tensor) -> Tensor:
    """The same bytes in a type that torch can index, which excludes fp8."""
    return rows.view(torch.int8) if rows.dtype in LARGEST else rows
