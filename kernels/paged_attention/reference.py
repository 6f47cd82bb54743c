"""Plain torch: gather each row's keys and values, softmax in fp32, or fp64 where q is."""

from __future__ import annotations

import torch
from torch import Tensor

from headstart.kernels.paged_attention.storage import Narrow, gather, store


def paged_attention(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    tables: Tensor,
    seq_of_row: Tensor,
    context_of_row: Tensor,
    scale: float,
    narrow: Narrow | None = None,
) -> Tensor:
    """Shapes as in the package's `paged_attention`; a row of context 0 gives zeros."""
    heads, kv_heads, block_size = q.shape[1], k_pool.shape[1], k_pool.shape[2]
    carried = torch.promote_types(q.dtype, torch.float32)
    out = torch.zeros_like(q, dtype=carried)
    for row, (seq, context) in enumerate(
        zip(seq_of_row.tolist(), context_of_row.tolist(), strict=True)
    ):
        if context == 0:
            continue
        ids = tables[seq, : -(-context // block_size)].long()
        keys, values = (gather(pool, ids, context, narrow).to(carried) for pool in (k_pool, v_pool))
        grouped = q[row].to(carried).reshape(kv_heads, heads // kv_heads, -1)
        scores = torch.einsum("hgd,htd->hgt", grouped, keys) * scale
        weighted = torch.einsum("hgt,htd->hgd", torch.softmax(scores, dim=-1), values)
        out[row] = weighted.reshape(heads, -1)
    return out


def append(
    k_pool: Tensor,
    v_pool: Tensor,
    k: Tensor,
    v: Tensor,
    slots: Tensor,
    narrow: Narrow | None = None,
    coded: Tensor | None = None,
) -> None:
    """Store k, v [rows, kv_heads, D] at slot = block * block_size + offset, in place."""
    store(k_pool, k, slots, narrow, coded)
    store(v_pool, v, slots, narrow, coded)
