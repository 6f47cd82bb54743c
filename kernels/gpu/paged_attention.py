"""Attention over paged K/V for decode and chunked prefill: GQA, a sink and a window, split K.

A tile is QUERIES neighbouring rows of one sequence times the heads that share one KV head: all of
them meet each key and value in one tl.dot, so a key is read once for a whole group. Keys are walked
in tiles of T_TOKENS. With a window, a row sees the first `sink` tokens and its last `window` ones;
tiles in between are skipped.

Split K: a program takes `span` tokens' worth of tiles and writes its running maximum, total and
unnormalised output; a second kernel merges them in order. The cut is by the row's own context, so
the bits of a decode row do not depend on the batch. Chunks of up to SPLIT_ROWS rows are split too,
because a session's chunk alone has too few tiles to fill a GPU.

int8 and fp8 codes are exact in fp16 and bf16. K's scales multiply the scores and V's the weights,
in fp32: narrow K/V cost no rounding here beyond that of their storage.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

import math

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.gpu.launch import (
    LEAST_TILE,
    Launch,
    blocks,
    expect,
    expect_contiguous,
    expect_rows,
    power_of_2,
    run,
)
from headstart.kernels.gpu.pools import FLOATS, Pools, as_bytes

SPAN = 256
CHUNK_SPAN = 1024
CHUNK_SPANS = 8  # at most, which bounds the memory for parts
SPLIT_ROWS = 64
CHUNK_TILE = 64  # rows of a prefill tile, heads included

FLOAT, INT8, FP8 = 0, 1, 2
# What codes come divided by, so that fp16 holds weights times scales as well as it holds weights.
# Reading an e4m3's bits as an fp16's leaves 256 out of its exponent.
FACTORS = {FLOAT: 1.0, INT8: 128.0, FP8: 256.0}


@triton.jit
def _codes(p, mask, kind: tl.constexpr, like: tl.constexpr):
    """Stored K or V as `like`, exactly, codes divided by their kind's of FACTORS."""
    b = tl.load(p, mask=mask, other=0)
    if kind == 2:
        wide = b.to(tl.int16)
        bits = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
        b_codes = bits.to(tl.float16, bitcast=True).to(like)
    elif kind == 1:
        b_codes = (b.to(tl.float32) * 0.0078125).to(like)
    else:
        b_codes = b.to(like)
    return b_codes


@triton.jit
def _attention(
    p_q,
    p_k,
    p_v,
    p_k_scale,
    p_v_scale,
    p_tables,
    p_starts,
    p_contexts,
    p_out,
    p_part,
    p_most,
    p_total,
    scale,
    v_factor,
    stride_q,
    stride_table,
    sink,
    window,
    kv_heads: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    block_size: tl.constexpr,
    kind: tl.constexpr,
    windowed: tl.constexpr,
    queries: tl.constexpr,
    spans,
    span_tiles: tl.constexpr,
    T_ROWS: tl.constexpr,
    T_TOKENS: tl.constexpr,
    T_DIM: tl.constexpr,
):
    """q [rows, heads, D] -> out [rows, heads, D], or parts of it if span_tiles is not 0.

    Grid: tiles of the longest sequence, kv_heads * spans, sequences. p_part fp32
    [rows, heads, spans, D], p_most and p_total fp32 [rows, heads, spans].
    """
    i_tile, i_seq = tl.program_id(0), tl.program_id(2)
    i_kv, i_span = tl.program_id(1) % kv_heads, tl.program_id(1) // kv_heads
    start = tl.load(p_starts + i_seq)
    rows = tl.load(p_starts + i_seq + 1) - start
    before = tl.load(p_contexts + i_seq) - rows  # keys that the first row sees, besides its own
    first_row = i_tile * queries
    if first_row < rows:
        o_row = tl.arange(0, T_ROWS)
        query, member = first_row + o_row // group, o_row % group
        m_row = (o_row < queries * group) & (query < rows)
        context = tl.where(m_row, before + query + 1, 0)
        end = before + tl.minimum(first_row + queries, rows)

        # Tiles of keys: those of the sink, then those from the first row's window on.
        sink_tiles, from_tile = 0, 0
        if windowed:
            begin = tl.maximum(before + first_row + 1 - window, 0)
            sink_tiles = tl.cdiv(tl.minimum(sink, end), T_TOKENS)
            from_tile = tl.maximum(begin // T_TOKENS, sink_tiles)
        tiles = sink_tiles + tl.maximum(tl.cdiv(end, T_TOKENS) - from_tile, 0)
        i_first, i_last = 0, tiles
        if span_tiles > 0:
            i_first = i_span * span_tiles
            i_last = tl.minimum(tiles, i_first + span_tiles)

        o_dim = tl.arange(0, T_DIM)
        m_dim = o_dim < head_dim
        heads: tl.constexpr = kv_heads * group
        head = i_kv * group + member
        m_q = m_row[:, None] & m_dim[None, :]
        at_q = (start + query).to(tl.int64)
        p_rows = p_q + (at_q * stride_q + head * head_dim)[:, None] + o_dim[None, :]
        b_q = tl.load(p_rows, mask=m_q, other=0.0)
        b_most = tl.full((T_ROWS,), float("-inf"), tl.float32)
        b_total = tl.zeros((T_ROWS,), tl.float32)
        b_out = tl.zeros((T_ROWS, T_DIM), tl.float32)
        p_table = p_tables + i_seq.to(tl.int64) * stride_table
        for i in range(i_first, i_last):
            i_key = tl.where(i < sink_tiles, i, i - sink_tiles + from_tile)
            o_token = i_key * T_TOKENS + tl.arange(0, T_TOKENS)
            m_token = o_token < end
            if windowed:
                m_token = m_token & ((o_token < sink) | (o_token >= begin))
            block = tl.load(p_table + o_token // block_size, mask=m_token, other=0)
            slot = (block.to(tl.int64) * kv_heads + i_kv) * block_size + o_token % block_size
            at = slot[:, None] * head_dim + o_dim[None, :]
            m_kv = m_token[:, None] & m_dim[None, :]
            b_k = _codes(p_k + at, m_kv, kind, b_q.dtype)
            b_score = tl.dot(b_q, tl.trans(b_k), input_precision="ieee") * scale
            if kind != 0:
                b_score *= tl.load(p_k_scale + slot, mask=m_token, other=0.0)[None, :]
            seen = o_token[None, :] < context[:, None]
            if windowed:
                near = o_token[None, :] >= context[:, None] - window
                seen = seen & ((o_token[None, :] < sink) | near)
            b_score = tl.where(seen, b_score, float("-inf"))
            b_now = tl.maximum(b_most, tl.max(b_score, axis=1))
            b_base = tl.where(b_now == float("-inf"), 0.0, b_now)
            b_fade = tl.exp2(b_most - b_base)
            b_weight = tl.exp2(b_score - b_base[:, None])
            b_total = b_total * b_fade + tl.sum(b_weight, axis=1)
            if kind != 0:
                b_v_scale = tl.load(p_v_scale + slot, mask=m_token, other=0.0) * v_factor
                b_weight *= b_v_scale[None, :]
            b_v = _codes(p_v + at, m_kv, kind, b_q.dtype)
            b_out = b_out * b_fade[:, None]
            b_out = tl.dot(b_weight.to(b_q.dtype), b_v, b_out, input_precision="ieee")
            b_most = b_now
        o_out = at_q * heads + head
        if span_tiles > 0:
            if i_first < i_last:
                o_span = o_out * spans + i_span
                tl.store(p_most + o_span, b_most, mask=m_row)
                tl.store(p_total + o_span, b_total, mask=m_row)
                tl.store(p_part + o_span[:, None] * head_dim + o_dim[None, :], b_out, mask=m_q)
        else:
            total = tl.where(b_total == 0.0, 1.0, b_total)
            b_out = b_out / total[:, None]
            to = p_out + o_out[:, None] * head_dim + o_dim[None, :]
            tl.store(to, b_out.to(p_out.dtype.element_ty), mask=m_q)


@triton.jit
def _merge(
    p_part,
    p_most,
    p_total,
    p_starts,
    p_contexts,
    p_out,
    sink,
    window,
    spans,
    heads: tl.constexpr,
    head_dim: tl.constexpr,
    windowed: tl.constexpr,
    queries: tl.constexpr,
    span_tiles: tl.constexpr,
    T_TOKENS: tl.constexpr,
    T_DIM: tl.constexpr,
):
    """The spans of one row and head, in order -> out. Grid: longest sequence's rows, heads, seqs.

    The number of spans is found as `_attention` does; both have the same first and last row.
    """
    i_row, i_head, i_seq = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(p_starts + i_seq)
    rows = tl.load(p_starts + i_seq + 1) - start
    if i_row < rows:
        before = tl.load(p_contexts + i_seq) - rows
        first_row = i_row // queries * queries
        end = before + tl.minimum(first_row + queries, rows)
        sink_tiles, from_tile = 0, 0
        if windowed:
            begin = tl.maximum(before + first_row + 1 - window, 0)
            sink_tiles = tl.cdiv(tl.minimum(sink, end), T_TOKENS)
            from_tile = tl.maximum(begin // T_TOKENS, sink_tiles)
        tiles = sink_tiles + tl.maximum(tl.cdiv(end, T_TOKENS) - from_tile, 0)
        o_dim = tl.arange(0, T_DIM)
        m_dim = o_dim < head_dim
        o_out = (start + i_row).to(tl.int64) * heads + i_head
        # As vectors of one: a loop carries them, and their first value is minus infinity.
        most = tl.full((1,), float("-inf"), tl.float32)
        total = tl.zeros((1,), tl.float32)
        b_out = tl.zeros((T_DIM,), tl.float32)
        o_one = tl.arange(0, 1)
        for i_span in range(tl.cdiv(tiles, span_tiles)):
            at = o_out * spans + i_span
            next_most = tl.load(p_most + at + o_one)
            now = tl.maximum(most, next_most)
            base = tl.where(now == float("-inf"), 0.0, now)
            fade, weight = tl.exp2(most - base), tl.exp2(next_most - base)
            b_part = tl.load(p_part + at * head_dim + o_dim, mask=m_dim, other=0.0)
            b_out = b_out * fade + b_part * weight
            total = total * fade + tl.load(p_total + at + o_one) * weight
            most = now
        b_out = b_out / tl.where(total == 0.0, 1.0, total)
        to = p_out + o_out * head_dim + o_dim
        tl.store(to, b_out.to(p_out.dtype.element_ty), mask=m_dim)


def plan(
    q: Tensor,
    pools: Pools,
    tables: Tensor,
    starts: Tensor,
    contexts: Tensor,
    scale: float,
    *,
    longest: int,
    window: int = 0,
    sink: int = 0,
    span: int | None = None,
    out: Tensor | None = None,
) -> tuple[Tensor, list[Launch]]:
    """The output and the launches that fill it; arguments as of `paged_attention`."""
    expect(q, "q", (None, None, None), *FLOATS)
    expect_rows(q, "q")
    rows, heads, head_dim = q.shape
    pools.check(head_dim)
    if not pools.coded and pools.k.dtype != q.dtype:
        raise KernelInputError(f"k: expected {q.dtype} as q, or codes, got {pools.k.dtype}")
    _, kv_heads, block_size, _ = pools.k.shape
    if heads % kv_heads or (heads and q.stride(1) != head_dim):
        raise KernelInputError(f"q: {heads} heads in one piece, a multiple of {kv_heads} expected")
    seqs = tables.shape[0]
    expect(tables, "tables", (None, None), torch.int32)
    expect(starts, "starts", (seqs + 1,), torch.int32)
    expect(contexts, "contexts", (seqs,), torch.int32)
    expect_contiguous(tables=tables, starts=starts, contexts=contexts)
    if window < 0 or sink < 0 or (sink and not window):
        raise KernelInputError(f"window {window}, sink {sink}: expected a sink with a window only")
    group = heads // kv_heads
    decode = longest == 1
    tile_rows = max(LEAST_TILE, power_of_2(group)) if decode else max(CHUNK_TILE, power_of_2(group))
    queries = 1 if decode else tile_rows // group
    wide = q.dtype == torch.float32
    # Codes are widened in registers: tiles of 64 would spill on AMD, a chunk's on NVIDIA too.
    tile_tokens = 32 if wide or pools.coded else 64
    split = longest <= SPLIT_ROWS
    # Enough for the longest possible context: asking the GPU for the actual one would wait for it.
    keys = tables.shape[1] * block_size
    if window:
        near = window + queries + 2 * tile_tokens
        keys = min(keys, blocks(sink, tile_tokens) * tile_tokens + near)
    if span is None:
        span = SPAN if decode else max(CHUNK_SPAN, blocks(keys, CHUNK_SPANS))
    span_tiles = blocks(span, tile_tokens) if split else 0
    spans = max(blocks(blocks(keys, tile_tokens), span_tiles), 1) if split else 1
    if out is None:
        out = torch.empty((rows, heads, head_dim), dtype=q.dtype, device=q.device)
    expect(out, "out", (rows, heads, head_dim), q.dtype)
    expect_contiguous(out=out)
    part = most = total = None
    if split:
        size = (rows, heads, spans)
        part = torch.empty((*size, head_dim), dtype=torch.float32, device=q.device)
        most = torch.empty(size, dtype=torch.float32, device=q.device)
        total = torch.empty_like(most)
    kind = FLOAT if not pools.coded else INT8 if pools.k.dtype == torch.int8 else FP8
    tile_dim = power_of_2(head_dim, LEAST_TILE)
    factor = scale * math.log2(math.e) * FACTORS[kind]
    common = {
        "head_dim": head_dim,
        "windowed": window > 0,
        "queries": queries,
        "span_tiles": span_tiles,
        "T_TOKENS": tile_tokens,
        "T_DIM": tile_dim,
    }
    launches = [
        Launch(
            _attention,
            (blocks(longest, queries), kv_heads * spans, seqs),
            {
                "p_q": q,
                "p_k": as_bytes(pools.k),
                "p_v": as_bytes(pools.v),
                "p_k_scale": pools.k_scale,
                "p_v_scale": pools.v_scale,
                "p_tables": tables,
                "p_starts": starts,
                "p_contexts": contexts,
                "p_out": out,
                "p_part": part,
                "p_most": most,
                "p_total": total,
                "scale": factor,
                "v_factor": FACTORS[kind],
                "stride_q": q.stride(0),
                "stride_table": tables.stride(0),
                "sink": sink,
                "window": window,
                "spans": spans,
            },
            {
                **common,
                "kv_heads": kv_heads,
                "group": group,
                "block_size": block_size,
                "kind": kind,
                "T_ROWS": tile_rows,
            },
            threads=128 if decode else 256,
            stages=2,
        )
    ]
    if split:
        launches.append(
            Launch(
                _merge,
                (longest, heads, seqs),
                {
                    "p_part": part,
                    "p_most": most,
                    "p_total": total,
                    "p_starts": starts,
                    "p_contexts": contexts,
                    "p_out": out,
                    "sink": sink,
                    "window": window,
                    "spans": spans,
                },
                {**common, "heads": heads},
                threads=64 if head_dim <= 128 else 128,
                stages=2,
            )
        )
    return out, launches


def paged_attention(
    q: Tensor,
    pools: Pools,
    tables: Tensor,
    starts: Tensor,
    contexts: Tensor,
    scale: float,
    *,
    longest: int,
    window: int = 0,
    sink: int = 0,
    span: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """q [rows, heads, D] -> [rows, heads, D] of q's dtype (fp32, fp16 or bf16).

    Sequence s has rows starts[s] to starts[s + 1] (int32 [seqs + 1]) and contexts[s] keys (int32
    [seqs]), those of its rows included; tables int32 [seqs, max_blocks]. Row i of n sees the first
    contexts[s] - n + i + 1 keys; with a `window` of those the first `sink` and the last `window`.
    `longest`: rows of the sequence that has most, or a bound. Pools have q's dtype, int8 or fp8.
    `span`: keys of one program; it must not change between calls whose bits are to be the same.
    Raises KernelInputError.
    """
    out, launches = plan(
        q,
        pools,
        tables,
        starts,
        contexts,
        scale,
        longest=longest,
        window=window,
        sink=sink,
        span=span,
        out=out,
    )
    run(launches)
    return out
