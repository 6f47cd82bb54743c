"""Matmul of few rows with a weight that stays packed (packed_weight.py): y = x W^T + bias.

A group of 32 columns is two tl.dots of 16, its low and its high nibbles, as fp16 or bf16, in which
codes are exact. Scales meet the sums of a group in fp32, so no weight is rounded:

    y += s sum(code x)  +  m sum(x)

The columns are cut into `splits` parts, a program each, so that a narrow weight fills a GPU; a
second kernel adds the parts in order. The cut depends on the weight's shape only, so a row's bits
do not depend on the batch where matrix units round alike in tiles of any height.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

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
from headstart.kernels.gpu.packed_weight import GROUP, PackedWeight
from headstart.kernels.gpu.pools import FLOATS
from headstart.kernels.qlinear.formats import lookup

TILE_OUT = 64
TILE_GROUPS = 4
MOST_ROWS = 64
"""Rows of x in one tile; more are several tiles, each of which reads the weight."""
PROGRAMS = 256
"""Parts are made until a weight has about so many programs: two for a processor of an H200."""
LEAST_GROUPS = 4


@triton.jit
def _matmul(
    p_x,
    p_codes,
    p_high,
    p_scale,
    p_minimum,
    p_sub_scale,
    p_sub_minimum,
    p_part,
    rows,
    stride_x,
    outs,
    groups,
    split_groups,
    bits: tl.constexpr,
    zero: tl.constexpr,
    affine: tl.constexpr,
    is_super: tl.constexpr,
    halved: tl.constexpr,
    T_ROWS: tl.constexpr,
    T_OUT: tl.constexpr,
    T_GROUPS: tl.constexpr,
):
    """x [rows, K] -> part fp32 [splits, rows, outs]. Grid: tiles of outs, splits, tiles of rows."""
    i_out, i_split, i_row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    o_out = i_out.to(tl.int64) * T_OUT + tl.arange(0, T_OUT)
    o_row = i_row * T_ROWS + tl.arange(0, T_ROWS)
    o_k = tl.arange(0, 16)
    m_out, m_row = o_out < outs, o_row < rows
    m_code = m_out[:, None] & (o_k < 16)[None, :]
    b_out = tl.zeros((T_ROWS, T_OUT), tl.float32)
    last = tl.minimum(groups, (i_split + 1) * split_groups)
    for first in range(i_split * split_groups, last, T_GROUPS):
        # Several groups at once, so that enough loads are under way.
        for j in tl.static_range(T_GROUPS):
            g = first + j
            inside = g < last
            m_in, m_x = m_out & inside, m_row[:, None] & inside
            m_code_in = m_code & inside
            at_x = p_x + o_row.to(tl.int64)[:, None] * stride_x + g * 32 + o_k[None, :]
            x_low = tl.load(at_x, mask=m_x, other=0.0)
            x_high = tl.load(at_x + 16, mask=m_x, other=0.0)
            plane = g * outs  # codes lie at 16 or 32 times that: from here on in 64 bits
            if bits == 8:
                at = p_codes + (2 * plane + o_out)[:, None] * 16 + o_k[None, :]
                low = tl.load(at, mask=m_code_in, other=0).to(tl.int32)
                high = tl.load(at + outs * 16, mask=m_code_in, other=0).to(tl.int32)
            else:
                at = p_codes + (plane + o_out)[:, None] * 16 + o_k[None, :]
                both = tl.load(at, mask=m_code_in, other=0).to(tl.int32)
                low, high = both & 15, both >> 4
                if bits == 5:
                    word = tl.load(p_high + plane + o_out, mask=m_in, other=0)[:, None]
                    low |= ((word >> o_k[None, :]) & 1) << 4
                    high |= ((word >> (o_k[None, :] + 16)) & 1) << 4
                if bits == 6:
                    at_word = p_high + 2 * plane + o_out
                    word = tl.load(at_word, mask=m_in, other=0)[:, None]
                    low |= ((word >> (2 * o_k[None, :])) & 3) << 4
                    word = tl.load(at_word + outs, mask=m_in, other=0)[:, None]
                    high |= ((word >> (2 * o_k[None, :])) & 3) << 4
                low -= zero
                high -= zero
            w_low = tl.trans(low.to(tl.float32).to(x_low.dtype))
            w_high = tl.trans(high.to(tl.float32).to(x_low.dtype))
            at_block = g // 8 * outs + o_out if is_super else plane + o_out
            scale = tl.load(p_scale + at_block, mask=m_in, other=0.0).to(tl.float32)
            if halved:
                at_sub = p_sub_scale + 2 * plane + o_out
                sub = tl.load(at_sub, mask=m_in, other=0).to(tl.float32)
                sub_high = tl.load(at_sub + outs, mask=m_in, other=0).to(tl.float32)
                b_out += tl.dot(x_low, w_low, input_precision="ieee") * (scale * sub)[None, :]
                b_out += (
                    tl.dot(x_high, w_high, input_precision="ieee") * (scale * sub_high)[None, :]
                )
            else:
                b_sum = tl.dot(x_low, w_low, input_precision="ieee")
                b_sum = tl.dot(x_high, w_high, b_sum, input_precision="ieee")
                if is_super:
                    scale *= tl.load(p_sub_scale + plane + o_out, mask=m_in, other=0).to(tl.float32)
                b_out += b_sum * scale[None, :]
            if affine:
                least = tl.load(p_minimum + at_block, mask=m_in, other=0.0).to(tl.float32)
                if is_super:
                    at_sub = p_sub_minimum + plane + o_out
                    least *= -tl.load(at_sub, mask=m_in, other=0).to(tl.float32)
                x_sum = tl.sum(x_low.to(tl.float32) + x_high.to(tl.float32), axis=1)
                b_out += x_sum[:, None] * least[None, :]
    to = p_part + (i_split.to(tl.int64) * rows + o_row)[:, None] * outs + o_out[None, :]
    tl.store(to, b_out, mask=m_row[:, None] & m_out[None, :])


@triton.jit
def _add_parts(
    p_part, p_bias, p_out, rows, outs, splits, biased: tl.constexpr, T_OUT: tl.constexpr
):
    """part [splits, rows, outs], in order, + bias -> out. Grid: rows, tiles of outs."""
    i_row = tl.program_id(0).to(tl.int64)
    o = tl.program_id(1) * T_OUT + tl.arange(0, T_OUT)
    m = o < outs
    b = tl.zeros((T_OUT,), tl.float32)
    for i in range(splits):
        b += tl.load(p_part + (i * rows + i_row) * outs + o, mask=m, other=0.0)
    if biased:
        b += tl.load(p_bias + o, mask=m, other=0.0).to(tl.float32)
    tl.store(p_out + i_row * outs + o, b.to(p_out.dtype.element_ty), mask=m)


def plan(
    x: Tensor, w: PackedWeight, bias: Tensor | None = None, *, dtype: torch.dtype | None = None
) -> tuple[Tensor, list[Launch]]:
    """The output and the launches that fill it; arguments as of `packed_matmul`."""
    expect(x, "x", (None, w.cols), *FLOATS)
    expect_rows(x, "x")
    form = lookup(w.kind)
    rows = x.shape[0]
    if rows > 1 << 20:
        raise KernelInputError(f"x: expected at most {1 << 20} rows, got {rows}")
    if bias is not None:
        expect(bias, "bias", (w.rows,), *FLOATS)
        expect_contiguous(bias=bias)
    tiles, groups = blocks(w.rows, TILE_OUT), w.cols // GROUP
    splits = max(1, min(PROGRAMS // tiles, groups // LEAST_GROUPS))
    split_groups = blocks(groups, splits)
    splits = blocks(groups, split_groups)
    tile_rows = min(power_of_2(rows, LEAST_TILE), MOST_ROWS)
    part = torch.empty((splits, rows, w.rows), dtype=torch.float32, device=x.device)
    out = torch.empty((rows, w.rows), dtype=dtype or x.dtype, device=x.device)
    first = Launch(
        _matmul,
        (tiles, splits, blocks(rows, tile_rows)),
        {
            "p_x": x,
            "p_codes": w.codes,
            "p_high": w.high,
            "p_scale": w.scale,
            "p_minimum": w.minimum,
            "p_sub_scale": w.sub_scale,
            "p_sub_minimum": w.sub_minimum,
            "p_part": part,
            "rows": rows,
            "stride_x": x.stride(0),
            "outs": w.rows,
            "groups": groups,
            "split_groups": split_groups,
        },
        {
            "bits": form.bits,
            "zero": form.zero,
            "affine": form.affine,
            "is_super": form.is_super,
            "halved": w.kind == "Q6_K",
            "T_ROWS": tile_rows,
            "T_OUT": TILE_OUT,
            "T_GROUPS": TILE_GROUPS if tile_rows <= 16 else 1,
        },
        threads=128,
        stages=3,
    )
    second = Launch(
        _add_parts,
        (rows, blocks(w.rows, 256)),
        {
            "p_part": part,
            "p_bias": bias,
            "p_out": out,
            "rows": rows,
            "outs": w.rows,
            "splits": splits,
        },
        {"biased": bias is not None, "T_OUT": 256},
        threads=64,
    )
    return out, [first, second]


def packed_matmul(
    x: Tensor, w: PackedWeight, bias: Tensor | None = None, *, dtype: torch.dtype | None = None
) -> Tensor:
    """x [rows, K] fp32, fp16 or bf16 -> x W^T + bias [rows, N]; rows may be strided.

    `dtype` of the result, x's if None: sums are fp32 until the end, so fp32 costs nothing and
    rounds nothing. Raises KernelInputError.
    """
    out, launches = plan(x, w, bias, dtype=dtype)
    run(launches)
    return out
