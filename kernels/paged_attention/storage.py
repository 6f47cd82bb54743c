"""How K and V lie in a pool: as floats, or a byte a number with one scale for each row.

A *row* is one token's K or V of one head. A pool of floats has rows of `head_dim` of them. A pool
of int8 or fp8 (e4m3) has rows of `head_dim` codes and, behind them, SCALE_BYTES that are the row's
fp32 scale:

    scale = max |x| / LARGEST        code = round(x / scale), ties to even        x ~ code * scale

Each row is encoded separately. A scale per block would change with each token, and the stored bytes
would depend on how the input was split.
"""

from __future__ import annotations

import torch
from torch import Tensor

SCALE_BYTES = 4
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


def store(pool: Tensor, heads: Tensor, slots: Tensor) -> None:
    """Store heads [rows, kv_heads, head_dim] at slot = block * block_size + offset, in place."""
    block_size = pool.shape[2]
    blocks = slots.div(block_size, rounding_mode="floor")
    offsets = slots.remainder(block_size)
    _indexable(pool)[blocks, :, offsets] = _indexable(encode(heads, pool.dtype))


def gather(pool: Tensor, blocks: Tensor, tokens: int) -> Tensor:
    """The first `tokens` tokens in blocks int64 [n] -> [kv_heads, tokens, head_dim], decoded."""
    # [n, kv_heads, block_size, width] -> [kv_heads, tokens, width]
    rows = _indexable(pool)[blocks].transpose(0, 1).flatten(1, 2)[:, :tokens]
    return decode(rows.contiguous().view(pool.dtype))


def _indexable(rows: Tensor) -> Tensor:
    """The same bytes in a type that torch can index, which excludes fp8."""
    return rows.view(torch.int8) if rows.dtype in LARGEST else rows
