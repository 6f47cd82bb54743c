"""Attention over a paged KV cache, and the append into it.

K and V pools are [num_blocks, kv_heads, block_size, width], contiguous, one pair per layer: fp32 or
fp16 with `width` head_dim, or int8 or fp8 with a scale behind each row (storage.py). fp32 pools may
hold blocks of a second type, int8 or fp8, which one call reads beside the others. The native
kernel is bitwise batch-invariant: a row's output depends on its query and on the keys and values
that it sees, not on the other rows, the block numbers or types, or the thread count.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.native import library, require
from headstart.kernels.paged_attention import native, reference
from headstart.kernels.paged_attention.storage import LARGEST, Narrow, head_dim_of, row_width

__all__ = ["append", "paged_attention", "require_narrow"]


def require_narrow(k_pool: Tensor, narrow: Narrow | None) -> None:
    """Raises KernelInputError unless the pool can hold blocks of a second type."""
    if narrow is not None and (k_pool.dtype != torch.float32 or narrow.dtype not in LARGEST):
        raise KernelInputError(
            f"narrow: expected int8 or fp8 beside fp32, got {narrow.dtype} beside {k_pool.dtype}"
        )


def _require_pools(
    k_pool: Tensor, v_pool: Tensor, head_dim: int, narrow: Narrow | None = None
) -> None:
    require_narrow(k_pool, narrow)
    width = row_width(head_dim, k_pool.dtype)
    require(k_pool, "k_pool", (None, None, None, width), *native.STORED)
    require(v_pool, "v_pool", tuple(k_pool.shape), k_pool.dtype)
    if not (k_pool.is_contiguous() and v_pool.is_contiguous()):
        raise KernelInputError("k_pool and v_pool: expected contiguous tensors")
    if 0 in k_pool.shape[1:]:  # the kernel divides by them
        raise KernelInputError(f"k_pool: expected heads and slots, got {list(k_pool.shape)}")


def paged_attention(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    tables: Tensor,
    seq_of_row: Tensor,
    context_of_row: Tensor,
    scale: float,
    *,
    narrow: Narrow | None = None,
    backend: str | None = None,
) -> Tensor:
    """q fp32 [rows, heads, D] -> fp32 [rows, heads, D]; heads a multiple of kv_heads.

    tables int32 [seqs, max_blocks]; seq_of_row int32 [rows] names each row's table;
    context_of_row int32 [rows] counts the keys the row sees, its own included (0 gives zeros).
    Entries of a table past a row's context are not looked at. `narrow`: the pools' second type of
    blocks. Raises KernelInputError.
    """
    require(q, "q", (None, None, None), torch.float32)
    rows, heads, head_dim = q.shape
    _require_pools(k_pool, v_pool, head_dim, narrow)
    require(tables, "tables", (None, None), torch.int32)
    require(seq_of_row, "seq_of_row", (rows,), torch.int32)
    require(context_of_row, "context_of_row", (rows,), torch.int32)
    if heads % k_pool.shape[1]:
        raise KernelInputError(f"q: {heads} heads do not share {k_pool.shape[1]} KV heads evenly")
    lib = library("paged_attention", native.declare, backend)
    if lib is None:
        return reference.paged_attention(
            q, k_pool, v_pool, tables, seq_of_row, context_of_row, scale, narrow
        )
    return native.paged_attention(
        lib,
        q.contiguous(),
        k_pool,
        v_pool,
        tables.contiguous(),
        seq_of_row.contiguous(),
        context_of_row.contiguous(),
        scale,
        narrow,
    )


def append(
    k_pool: Tensor,
    v_pool: Tensor,
    k: Tensor,
    v: Tensor,
    slots: Tensor,
    *,
    narrow: Narrow | None = None,
    coded: Tensor | None = None,
    backend: str | None = None,
) -> None:
    """Store k, v fp32 [rows, kv_heads, D] in the pools at slots int64 [rows], in place.

    slot = block * block_size + offset. `coded` bool [rows]: rows that are rounded to the type of
    `narrow` in blocks of either type. Raises KernelInputError; then nothing was stored.
    """
    require(k, "k", (None, k_pool.shape[1], head_dim_of(k_pool)), torch.float32)
    require(v, "v", tuple(k.shape), torch.float32)
    require(slots, "slots", (k.shape[0],), torch.int64)
    _require_pools(k_pool, v_pool, k.shape[2], narrow)
    if coded is not None:
        require(coded, "coded", (k.shape[0],), torch.bool)
        coded = coded.contiguous()
    lib = library("paged_attention", native.declare, backend)
    if lib is None:
        reference.append(k_pool, v_pool, k, v, slots, narrow, coded)
        return
    rows = k.contiguous(), v.contiguous(), slots.contiguous()
    native.append(lib, k_pool, v_pool, *rows, narrow, coded)
