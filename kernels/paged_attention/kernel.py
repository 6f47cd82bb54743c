"""Triton decode attention over the paged cache, for a GPU.

The keys of a row are cut into spans of SPAN tokens, counted from the sequence's start, so that a
single long row fills many processors. One program takes one (row, KV head, span) and writes its
running maximum, total and unnormalised output; a second kernel merges a row's spans in order. The
cut does not depend on the batch, so neither do a row's bits.

Pools of int8 and fp8 are read as they lie: a tile's codes become fp32 as they are loaded, times the
scale behind each row (storage.py).

It has been run in Triton's interpreter only (TRITON_INTERPRET=1): right there, never timed. The
public entry does not call it.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from headstart.kernels.native import KernelInputError
from headstart.kernels.paged_attention.storage import LARGEST, SCALE_BYTES

SPAN = 256
# tl.dot multiplies tiles of at least 16 a side.
LEAST_TILE = 16
# Triton's own marker for values known when the kernel is compiled; it exports no type for it.
Constant = Any


@triton.jit  # type: ignore[untyped-decorator]
def _tile(
    p_pool: Any,
    p_scale: Any,
    row: Any,
    m_row: Any,
    o_dim: Any,
    head_dim: tl.constexpr,
    width: tl.constexpr,
    coded: tl.constexpr,
) -> Any:
    """Stored rows as fp32 [T_TOKENS, T_DIM], zeros where `m_row` is not or beyond head_dim.

    A row is `width` elements, the first head_dim of them K or V. `coded`: they are codes, and the
    fp32 behind them is their scale; p_scale is p_pool's bytes as fp32.
    """
    mask = m_row[:, None] & (o_dim < head_dim)[None, :]
    at = row[:, None] * width + o_dim[None, :]
    b_tile = tl.load(p_pool + at, mask=mask, other=0.0).to(tl.float32)
    if coded:
        behind = (row * width + head_dim) // 4  # in fp32, which a row is whole ones of
        b_tile *= tl.load(p_scale + behind, mask=m_row, other=0.0)[:, None]
    return b_tile


@triton.jit  # type: ignore[untyped-decorator]
def _span_kernel(
    p_q: Any,
    p_k: Any,
    p_v: Any,
    p_k_scale: Any,
    p_v_scale: Any,
    p_tables: Any,
    p_seq: Any,
    p_context: Any,
    p_out: Any,
    p_most: Any,
    p_total: Any,
    scale: Any,
    max_blocks: Any,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    block_size: tl.constexpr,
    width: tl.constexpr,
    coded: tl.constexpr,
    spans: Any,
    span: tl.constexpr,
    T_GROUP: tl.constexpr,
    T_DIM: tl.constexpr,
    T_TOKENS: tl.constexpr,
) -> None:
    """q [rows, heads, D], one span -> out [rows, heads, spans, D], most, total [.., spans]."""
    i_row, i_kv, i_span = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    o_group, o_dim = tl.arange(0, T_GROUP), tl.arange(0, T_DIM)
    m_group, m_dim = o_group < group, o_dim < head_dim
    head = (i_row * kv_heads + i_kv) * group + o_group
    m_q = m_group[:, None] & m_dim[None, :]
    b_q = tl.load(p_q + head[:, None] * head_dim + o_dim[None, :], mask=m_q, other=0.0)
    b_q = b_q.to(tl.float32) * scale

    context = tl.load(p_context + i_row)
    p_table = p_tables + tl.load(p_seq + i_row).to(tl.int64) * max_blocks
    end = tl.minimum(context, (i_span + 1) * span)
    b_most = tl.full((T_GROUP,), float("-inf"), tl.float32)
    b_total = tl.zeros((T_GROUP,), tl.float32)
    b_out = tl.zeros((T_GROUP, T_DIM), tl.float32)
    for first in range(i_span * span, end, T_TOKENS):
        o_token = first + tl.arange(0, T_TOKENS)
        m_token = o_token < end
        block = tl.load(p_table + o_token // block_size, mask=m_token, other=0).to(tl.int64)
        row = (block * kv_heads + i_kv) * block_size + o_token % block_size
        b_k = _tile(p_k, p_k_scale, row, m_token, o_dim, head_dim, width, coded)
        b_v = _tile(p_v, p_v_scale, row, m_token, o_dim, head_dim, width, coded)
        b_score = tl.dot(b_q, tl.trans(b_k), input_precision="ieee")
        b_score = tl.where(m_token[None, :], b_score, float("-inf"))
        b_now = tl.maximum(b_most, tl.max(b_score, axis=1))
        b_fade = tl.exp(b_most - b_now)
        b_weight = tl.exp(b_score - b_now[:, None])
        b_total = b_total * b_fade + tl.sum(b_weight, axis=1)
        b_out = b_out * b_fade[:, None] + tl.dot(b_weight, b_v, input_precision="ieee")
        b_most = b_now
    o_span = head * spans + i_span
    tl.store(p_most + o_span, b_most, mask=m_group)
    tl.store(p_total + o_span, b_total, mask=m_group)
    tl.store(p_out + o_span[:, None] * head_dim + o_dim[None, :], b_out, mask=m_q)


@triton.jit  # type: ignore[untyped-decorator]
def _merge_kernel(
    p_part: Any,
    p_most: Any,
    p_total: Any,
    p_context: Any,
    p_out: Any,
    heads: tl.constexpr,
    head_dim: tl.constexpr,
    spans: Any,
    span: tl.constexpr,
    T_DIM: tl.constexpr,
) -> None:
    """One (row, head)'s spans, in order -> out [rows, heads, D]; a row that sees nothing: zeros."""
    i_head = tl.program_id(0)
    o_dim = tl.arange(0, T_DIM)
    m_dim = o_dim < head_dim
    context = tl.load(p_context + i_head // heads)
    most = tl.load(p_most + i_head * spans)
    total = tl.load(p_total + i_head * spans)
    b_out = tl.load(p_part + i_head * spans * head_dim + o_dim, mask=m_dim, other=0.0)
    for i_span in range(1, tl.cdiv(context, span)):
        at = i_head * spans + i_span
        next_most = tl.load(p_most + at)
        now = tl.maximum(most, next_most)
        fade, weight = tl.exp(most - now), tl.exp(next_most - now)
        b_part = tl.load(p_part + at * head_dim + o_dim, mask=m_dim, other=0.0)
        b_out = b_out * fade + b_part * weight
        total = total * fade + tl.load(p_total + at) * weight
        most = now
    b_out = tl.where(context > 0, b_out / tl.where(context > 0, total, 1.0), 0.0)
    tl.store(p_out + i_head * head_dim + o_dim, b_out, mask=m_dim)


def paged_attention(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    tables: Tensor,
    seq_of_row: Tensor,
    context_of_row: Tensor,
    scale: float,
    *,
    span: int = SPAN,
) -> Tensor:
    """Shapes as in the package's `paged_attention`, all tensors contiguous and on one GPU.

    `span` is the tokens one program takes; it must not change between calls whose bits are to be
    the same. Raises KernelInputError for pools of codes whose scales do not lie on whole fp32s.
    """
    rows, heads, head_dim = q.shape
    _, kv_heads, block_size, width = k_pool.shape
    k_scale, v_scale = _scales(k_pool, head_dim), _scales(v_pool, head_dim)
    group = heads // kv_heads
    # Enough for the longest possible context: asking the GPU for the actual one would wait for it.
    spans = triton.cdiv(tables.shape[1] * block_size, span)
    part = torch.empty((rows, heads, spans, head_dim), dtype=torch.float32, device=q.device)
    most = torch.empty((rows, heads, spans), dtype=torch.float32, device=q.device)
    total = torch.empty_like(most)
    out = torch.empty((rows, heads, head_dim), dtype=torch.float32, device=q.device)
    tile_dim = max(LEAST_TILE, triton.next_power_of_2(head_dim))
    _span_kernel[(rows, kv_heads, spans)](
        q,
        k_pool,
        v_pool,
        k_scale,
        v_scale,
        tables,
        seq_of_row,
        context_of_row,
        part,
        most,
        total,
        scale,
        tables.shape[1],
        kv_heads,
        group,
        head_dim,
        block_size,
        width,
        k_pool.dtype in LARGEST,
        spans,
        span,
        T_GROUP=max(LEAST_TILE, triton.next_power_of_2(group)),
        T_DIM=tile_dim,
        T_TOKENS=max(LEAST_TILE, triton.next_power_of_2(min(block_size, 64))),
    )
    _merge_kernel[(rows * heads,)](
        part, most, total, context_of_row, out, heads, head_dim, spans, span, T_DIM=tile_dim
    )
    return out


def _scales(pool: Tensor, head_dim: int) -> Tensor:
    """The pool's bytes as fp32, if it holds codes; else the pool, which nobody looks at."""
    if pool.dtype not in LARGEST:
        return pool
    if head_dim % SCALE_BYTES:
        raise KernelInputError(f"head_dim {head_dim}: expected a multiple of {SCALE_BYTES}")
    return pool.view(torch.int8).view(torch.float32)
