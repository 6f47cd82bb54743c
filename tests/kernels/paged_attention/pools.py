"""A paged cache with known contents, NaN wherever nothing was stored."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.kernels.paged_attention import append
from headstart.kernels.paged_attention.storage import encode


@dataclass(frozen=True)
class Shape:
    """Sizes of a cache; `lengths` are the tokens of each sequence."""

    heads: int
    kv_heads: int
    head_dim: int
    block_size: int
    lengths: tuple[int, ...]
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Pools:
    """A filled cache: pools and tables as the kernels take them, keys and values as put in."""

    k_pool: Tensor
    v_pool: Tensor
    tables: Tensor
    keys: list[Tensor]  # per sequence, fp32 [length, kv_heads, head_dim]
    values: list[Tensor]


def filled(shape: Shape, *, seed: int = 0, spare_blocks: int = 3) -> Pools:
    """Random keys and values in blocks dealt out at random; `seed` deals, contents are the same."""
    contents = torch.Generator().manual_seed(7)
    dealer = torch.Generator().manual_seed(seed)
    need = [-(-length // shape.block_size) for length in shape.lengths]
    order = torch.randperm(sum(need) + spare_blocks, generator=dealer)
    size = (len(order), shape.kv_heads, shape.block_size, shape.head_dim)
    k_pool = encode(torch.full(size, float("nan")), shape.dtype)
    v_pool = k_pool.clone()
    tables = torch.full((len(need), max(need) + 1), -1, dtype=torch.int32)
    keys, values, used = [], [], 0
    for seq, (length, blocks) in enumerate(zip(shape.lengths, need, strict=True)):
        tables[seq, :blocks] = order[used : used + blocks].int()
        used += blocks
        size3 = (length, shape.kv_heads, shape.head_dim)
        keys.append(torch.randn(size3, generator=contents))
        values.append(torch.randn(size3, generator=contents))
        at = torch.arange(length)
        slots = tables[seq, at // shape.block_size].long() * shape.block_size
        append(k_pool, v_pool, keys[-1], values[-1], slots + at % shape.block_size)
    return Pools(k_pool, v_pool, tables, keys, values)
