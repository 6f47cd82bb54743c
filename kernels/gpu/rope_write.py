"""Rotary embedding of q and k, and the write of k and v into paged pools, in one pass.

Angles come from positions without a table: `turns` are the frequencies as whole turns a position,
in units of 2^-64 of a turn, so that `position * turns` in 64-bit integers, which wrap, is the exact
phase of any position. Its upper 32 bits are cut to an eighth of a turn around a quarter, where sine
and cosine are short polynomials: the same on every chip.

With three axes (M-RoPE) the first frequencies turn with the first position, the next with the
second, the last with the third. int8 and fp8 rows get the codes and scales of storage.encode, to
the bit.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

from collections.abc import Sequence

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.gpu.launch import (
    Launch,
    blocks,
    expect,
    expect_contiguous,
    expect_rows,
    power_of_2,
    run,
)
from headstart.kernels.gpu.pools import FLOATS, Pools, as_bytes

TILE_HEADS = 8


@triton.jit
def _sine_cosine(phase):
    """int32 phases in 2^-32 turns -> sine and cosine, fp32, within about 1 ulp of 1."""
    quarter = (phase + 0x20000000) >> 30  # wraps: -2 and 2 are the same half turn
    rest = (phase - (quarter << 30)).to(tl.float32) * 1.4629180792671596e-09  # 2 pi / 2^32
    square = rest * rest
    s = rest + rest * square * (
        -0.16666666 + square * (0.008333331 + square * (-0.00019840874 + square * 2.7525562e-06))
    )
    c = 1.0 + square * (
        -0.5 + square * (0.041666642 + square * (-0.0013888397 + square * 2.4390449e-05))
    )
    odd = (quarter & 1) != 0
    sine, cosine = tl.where(odd, c, s), tl.where(odd, s, c)
    sine = tl.where((quarter & 2) != 0, -sine, sine)
    cosine = tl.where(((quarter + 1) & 2) != 0, -cosine, cosine)
    return sine, cosine


@triton.jit
def _encode_fp8(x):
    """fp32 within +-448 -> the nearest e4m3's byte, ties to even; NaN gives 0x7F."""
    bits = x.to(tl.int32, bitcast=True)
    sign = (bits >> 24) & 0x80
    size = bits & 0x7FFFFFFF
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - 960  # exponents: bias 127 to 7
    # Below 2^-6 steps are 2^-9: adding 2^23 leaves the nearest whole number in the last bits.
    small = (tl.abs(x) * 512.0 + 8388608.0).to(tl.int32, bitcast=True) & 0xFF
    code = tl.where(size < 0x3C800000, small, normal)
    code = tl.where(size > 0x7F800000, 0x7F, code)
    return (sign | code).to(tl.uint8)


@triton.jit
def _store_rows(p_pool, p_scale, b, b_second, slot, o_head, m, o_half, kv_heads: tl.constexpr,
                block_size: tl.constexpr, half: tl.constexpr, kind: tl.constexpr):  # fmt: skip
    """Two halves of rows, fp32 [T_HEADS, T_HALF] -> the pool at `slot`, coded by `kind`."""
    row = (slot // block_size * kv_heads + o_head) * block_size + slot % block_size
    m_half = m[:, None] & (o_half < half)[None, :]
    to = p_pool + row[:, None] * (2 * half) + o_half[None, :]
    if kind == 0:
        tl.store(to, b.to(p_pool.dtype.element_ty), mask=m_half)
        tl.store(to + half, b_second.to(p_pool.dtype.element_ty), mask=m_half)
    else:
        largest: tl.constexpr = 127.0 if kind == 1 else 448.0
        size = tl.where(m_half, tl.maximum(tl.abs(b), tl.abs(b_second)), 0.0)
        bad = m_half & ((b != b) | (b_second != b_second))
        most = tl.max(size, axis=1)
        is_bad = tl.max(bad.to(tl.int32), axis=1) != 0
        most = tl.where(is_bad, float("nan"), most)
        scale = tl.div_rn(most, tl.full(most.shape, largest, tl.float32))
        usable = (scale > 0.0) & (scale < float("inf"))
        tl.store(p_scale + row, scale, mask=m)
        by = tl.where(usable, scale, 1.0)[:, None] + tl.zeros(b.shape, tl.float32)
        first = tl.where(usable[:, None], tl.div_rn(b, by), 0.0)
        second = tl.where(usable[:, None], tl.div_rn(b_second, by), 0.0)
        first = tl.minimum(tl.maximum(first, -largest), largest)
        second = tl.minimum(tl.maximum(second, -largest), largest)
        if kind == 1:
            # Adding 1.5 * 2^23 leaves the nearest whole number, ties to even, in the last bits.
            code = (first + 12582912.0).to(tl.int32, bitcast=True) - 0x4B400000
            tl.store(to, code.to(tl.int8), mask=m_half)
            code = (second + 12582912.0).to(tl.int32, bitcast=True) - 0x4B400000
            tl.store(to + half, code.to(tl.int8), mask=m_half)
        else:
            tl.store(to, _encode_fp8(first), mask=m_half)
            tl.store(to + half, _encode_fp8(second), mask=m_half)


@triton.jit
def _rope_write(
    p_q,
    p_k,
    p_v,
    p_positions,
    p_turns,
    p_slots,
    p_q_out,
    p_k_pool,
    p_v_pool,
    p_k_scale,
    p_v_scale,
    stride_q,
    stride_k,
    stride_v,
    rows,
    heads: tl.constexpr,
    kv_heads: tl.constexpr,
    half: tl.constexpr,
    block_size: tl.constexpr,
    kind: tl.constexpr,
    axes: tl.constexpr,
    first_section: tl.constexpr,
    second_section: tl.constexpr,
    q_tiles: tl.constexpr,
    T_HEADS: tl.constexpr,
    T_HALF: tl.constexpr,
):
    """Grid: rows, tiles of q's heads and behind them tiles of K's and V's heads."""
    i_row, i_tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    o_half = tl.arange(0, T_HALF)
    m_dim = o_half < half
    position = tl.load(p_positions + i_row)
    turns = tl.load(p_turns + o_half, mask=m_dim, other=0)
    if axes == 3:
        second = tl.load(p_positions + rows + i_row)
        third = tl.load(p_positions + 2 * rows + i_row)
        far = tl.where(o_half < first_section + second_section, second, third)
        phase = tl.where(o_half < first_section, position, far) * turns
    else:
        phase = position * turns
    sine, cosine = _sine_cosine((phase >> 32).to(tl.int32))
    sine, cosine = sine[None, :], cosine[None, :]
    if i_tile < q_tiles:
        o_head = i_tile * T_HEADS + tl.arange(0, T_HEADS)
        m_half = (o_head < heads)[:, None] & m_dim[None, :]
        at = p_q + i_row * stride_q + o_head[:, None] * (2 * half) + o_half[None, :]
        b = tl.load(at, mask=m_half, other=0.0).to(tl.float32)
        b_second = tl.load(at + half, mask=m_half, other=0.0).to(tl.float32)
        to = p_q_out + (i_row * heads + o_head)[:, None] * (2 * half) + o_half[None, :]
        out = b * cosine - b_second * sine
        tl.store(to, out.to(p_q_out.dtype.element_ty), mask=m_half)
        out = b_second * cosine + b * sine
        tl.store(to + half, out.to(p_q_out.dtype.element_ty), mask=m_half)
    else:
        slot = tl.load(p_slots + i_row)
        o_head = (i_tile - q_tiles) * T_HEADS + tl.arange(0, T_HEADS)
        m = (o_head < kv_heads) & (slot >= 0)
        m_half = m[:, None] & m_dim[None, :]
        inner = o_head[:, None] * (2 * half) + o_half[None, :]
        at = p_k + i_row * stride_k + inner
        b = tl.load(at, mask=m_half, other=0.0).to(tl.float32)
        b_second = tl.load(at + half, mask=m_half, other=0.0).to(tl.float32)
        turned = b * cosine - b_second * sine
        turned_second = b_second * cosine + b * sine
        _store_rows(p_k_pool, p_k_scale, turned, turned_second, slot, o_head, m, o_half, kv_heads,
                    block_size, half, kind)  # fmt: skip
        at = p_v + i_row * stride_v + inner
        b = tl.load(at, mask=m_half, other=0.0).to(tl.float32)
        b_second = tl.load(at + half, mask=m_half, other=0.0).to(tl.float32)
        _store_rows(p_v_pool, p_v_scale, b, b_second, slot, o_head, m, o_half, kv_heads,
                    block_size, half, kind)  # fmt: skip


def plan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    turns: Tensor,
    slots: Tensor,
    pools: Pools,
    *,
    sections: Sequence[int] = (),
    q_out: Tensor | None = None,
) -> tuple[Tensor, list[Launch]]:
    """The rotated q and the launch that fills it; arguments as of `rope_write`."""
    expect(q, "q", (None, None, None), *FLOATS)
    rows, heads, head_dim = q.shape
    pools.check(head_dim)
    _, kv_heads, block_size, _ = pools.k.shape
    expect(k, "k", (rows, kv_heads, head_dim), q.dtype)
    expect(v, "v", (rows, kv_heads, head_dim), q.dtype)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        expect_rows(tensor, name)
        if tensor.shape[1] > 1 and tensor.stride(1) != head_dim:
            raise KernelInputError(f"{name}: expected a row's heads in one piece")
    if head_dim % 2:
        raise KernelInputError(f"q: expected an even head dimension, got {head_dim}")
    axes = 3 if sections else 1
    if sections and (len(sections) != axes or sum(sections) != head_dim // 2):
        raise KernelInputError(
            f"sections: expected 3 with a sum of {head_dim // 2}, got {list(sections)}"
        )
    expect(positions, "positions", (axes, rows) if sections else (rows,), torch.int64)
    expect(turns, "turns", (head_dim // 2,), torch.int64)
    expect(slots, "slots", (rows,), torch.int64)
    if q_out is None:
        q_out = torch.empty((rows, heads, head_dim), dtype=q.dtype, device=q.device)
    expect(q_out, "q_out", (rows, heads, head_dim), q.dtype)
    expect_contiguous(positions=positions, turns=turns, slots=slots, q_out=q_out)
    q_tiles = blocks(heads, TILE_HEADS)
    kind = 0 if not pools.coded else 1 if pools.k.dtype == torch.int8 else 2
    first, second = (sections[0], sections[1]) if sections else (head_dim // 2, 0)
    return q_out, [
        Launch(
            _rope_write,
            (rows, q_tiles + blocks(kv_heads, TILE_HEADS)),
            {
                "p_q": q,
                "p_k": k,
                "p_v": v,
                "p_positions": positions,
                "p_turns": turns,
                "p_slots": slots,
                "p_q_out": q_out,
                "p_k_pool": as_bytes(pools.k),
                "p_v_pool": as_bytes(pools.v),
                "p_k_scale": pools.k_scale,
                "p_v_scale": pools.v_scale,
                "stride_q": q.stride(0),
                "stride_k": k.stride(0),
                "stride_v": v.stride(0),
                "rows": rows,
            },
            {
                "heads": heads,
                "kv_heads": kv_heads,
                "half": head_dim // 2,
                "block_size": block_size,
                "kind": kind,
                "axes": axes,
                "first_section": first,
                "second_section": second,
                "q_tiles": q_tiles,
                "T_HEADS": TILE_HEADS,
                "T_HALF": power_of_2(head_dim // 2),
            },
            threads=64,
        )
    ]


def rope_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    turns: Tensor,
    slots: Tensor,
    pools: Pools,
    *,
    sections: Sequence[int] = (),
    q_out: Tensor | None = None,
) -> Tensor:
    """Rotated q [rows, heads, D]; k and v [rows, kv_heads, D] are written to `pools` at `slots`.

    q, k and v may be slices of one projection's rows. positions int64 [rows], or [3, rows] with
    `sections`, the frequencies of each axis (M-RoPE); turns int64 [D / 2] of `reference.turns`;
    slots int64 [rows], a negative one: write nothing. Raises KernelInputError.
    """
    out, launches = plan(q, k, v, positions, turns, slots, pools, sections=sections, q_out=q_out)
    run(launches)
    return out
