"""Fewer visual tokens: the mean of neighbours, and one step of merging the most alike.

`pool_grid` takes the mean of each square of `by` x `by` tokens; squares at the edges have what is
there. `best_match` and `merge` are a step of token merging (Bolya et al., "Token Merging: Your ViT
But Faster", 2023): tokens at even places are compared with those at odd places by the cosine of
their angle, and the pairs that are most alike become one token, the mean weighted by how many
tokens each stands for.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

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
    run,
)
from headstart.kernels.gpu.pools import FLOATS

TILE_DIM = 512
TILE_TOKENS = 32
TILE_INNER = 32
TILE_LIST = 16
LIST_DIM = 256


@triton.jit
def _pool_grid(
    p_x,
    p_out,
    height,
    width,
    dim,
    by: tl.constexpr,
    T_DIM: tl.constexpr,
):
    """x [H, W, D] -> out [ceil(H / by), ceil(W / by), D]. Grid: squares, tiles of D."""
    i_square = tl.program_id(0)
    across = tl.cdiv(width, by)
    row0, column0 = i_square // across * by, i_square % across * by
    o_dim = tl.program_id(1) * T_DIM + tl.arange(0, T_DIM)
    m_dim = o_dim < dim
    b = tl.zeros((T_DIM,), tl.float32)
    for i in range(by * by):
        row, column = row0 + i // by, column0 + i % by
        inside = (row < height) & (column < width)
        at = (row.to(tl.int64) * width + column) * dim + o_dim
        b += tl.load(p_x + at, mask=m_dim & inside, other=0.0).to(tl.float32)
    count = tl.minimum(by, height - row0) * tl.minimum(by, width - column0)
    b = b / count.to(tl.float32)
    to = p_out + i_square.to(tl.int64) * dim + o_dim
    tl.store(to, b.to(p_out.dtype.element_ty), mask=m_dim)


@triton.jit
def _best_match(p_x, p_score, p_place, tokens, dim, T_TOKENS: tl.constexpr, T_INNER: tl.constexpr):
    """x [tokens, D]: of each even token the most similar odd one. Grid: tiles of even tokens.

    Of equal ones the first is taken; NaN matches nobody (-1, score minus infinity).
    """
    o_even = tl.program_id(0) * T_TOKENS + tl.arange(0, T_TOKENS)
    evens, odds = (tokens + 1) // 2, tokens // 2
    m_even = o_even < evens
    o_inner = tl.arange(0, T_INNER)
    best = tl.full((T_TOKENS,), float("-inf"), tl.float32)
    match = tl.full((T_TOKENS,), -1, tl.int32)
    at_even = p_x + (2 * o_even).to(tl.int64)[:, None] * dim
    for first in range(0, odds, T_TOKENS):
        o_odd = first + tl.arange(0, T_TOKENS)
        m_odd = o_odd < odds
        at_odd = p_x + (2 * o_odd + 1).to(tl.int64)[:, None] * dim
        both = tl.zeros((T_TOKENS, T_TOKENS), tl.float32)
        norm_even = tl.zeros((T_TOKENS,), tl.float32)
        norm_odd = tl.zeros((T_TOKENS,), tl.float32)
        for inner in range(0, dim, T_INNER):
            m_inner = ((inner + o_inner) < dim)[None, :]
            at = inner + o_inner[None, :]
            b_even = tl.load(at_even + at, mask=m_even[:, None] & m_inner, other=0.0)
            b_odd = tl.load(at_odd + at, mask=m_odd[:, None] & m_inner, other=0.0)
            both = tl.dot(b_even, tl.trans(b_odd), both, input_precision="ieee")
            b_even, b_odd = b_even.to(tl.float32), b_odd.to(tl.float32)
            norm_even += tl.sum(b_even * b_even, axis=1)
            norm_odd += tl.sum(b_odd * b_odd, axis=1)
        least = 1e-30
        size = tl.sqrt(tl.maximum(norm_even, least))[:, None]
        cosine = both / (size * tl.sqrt(tl.maximum(norm_odd, least))[None, :])
        cosine = tl.where(m_odd[None, :] & (cosine == cosine), cosine, float("-inf"))
        most = tl.max(cosine, axis=1)
        # The first of those that have it.
        place = tl.where(cosine == most[:, None], o_odd[None, :], 2147483647)
        place = tl.min(place, axis=1)
        better = most > best
        best, match = tl.where(better, most, best), tl.where(better, place, match)
    tl.store(p_score + o_even, best, mask=m_even)
    tl.store(p_place + o_even, match, mask=m_even)


@triton.jit
def _merge(
    p_x,
    p_size,
    p_merged,
    p_match,
    p_out,
    p_out_size,
    merged,
    dim,
    T_LIST: tl.constexpr,
    T_DIM: tl.constexpr,
):
    """Odd tokens take in the even ones that are merged into them. Grid: odd tokens, tiles of D.

    p_merged int32 [merged]: even places (token / 2); p_match [evens]: odd ones. out [odds, D].
    """
    i_odd = tl.program_id(0)
    o_dim = tl.program_id(1) * T_DIM + tl.arange(0, T_DIM)
    m_dim = o_dim < dim
    size = tl.load(p_size + 2 * i_odd + 1)
    at = (2 * i_odd + 1).to(tl.int64) * dim + o_dim
    b = tl.load(p_x + at, mask=m_dim, other=0.0).to(tl.float32) * size
    for first in range(0, merged, T_LIST):
        o_list = first + tl.arange(0, T_LIST)
        even = tl.load(p_merged + o_list, mask=o_list < merged, other=-1)
        m_mine = even >= 0
        m_mine = m_mine & (tl.load(p_match + even, mask=m_mine, other=-1) == i_odd)
        sizes = tl.load(p_size + 2 * even, mask=m_mine, other=0.0)
        at_even = (2 * even).to(tl.int64)[:, None] * dim + o_dim[None, :]
        # Tokens of others are not loaded at all.
        b_even = tl.load(p_x + at_even, mask=m_mine[:, None] & m_dim[None, :], other=0.0)
        b += tl.sum(b_even.to(tl.float32) * sizes[:, None], axis=0)
        size += tl.sum(sizes, axis=0)
    to = p_out + i_odd.to(tl.int64) * dim + o_dim
    tl.store(to, (b / size).to(p_out.dtype.element_ty), mask=m_dim)
    if tl.program_id(1) == 0:
        tl.store(p_out_size + i_odd, size)


def plan_pool(x: Tensor, by: int) -> tuple[Tensor, list[Launch]]:
    """The output and the launch that fills it; arguments as of `pool_grid`."""
    expect(x, "x", (None, None, None), *FLOATS)
    expect_contiguous(x=x)
    if by < 1:
        raise KernelInputError(f"by: expected at least 1, got {by}")
    height, width, dim = x.shape
    down, across = blocks(height, by), blocks(width, by)
    out = torch.empty((down, across, dim), dtype=x.dtype, device=x.device)
    launch = Launch(
        _pool_grid,
        (down * across, blocks(dim, TILE_DIM)),
        {"p_x": x, "p_out": out, "height": height, "width": width, "dim": dim},
        {"by": by, "T_DIM": TILE_DIM},
    )
    return out, [launch]


def plan_match(x: Tensor) -> tuple[Tensor, Tensor, list[Launch]]:
    """Scores, matches and the launch that fills them; arguments as of `best_match`."""
    expect(x, "x", (None, None), *FLOATS)
    expect_contiguous(x=x)
    tokens, dim = x.shape
    evens = (tokens + 1) // 2
    score = torch.empty((evens,), dtype=torch.float32, device=x.device)
    match = torch.empty((evens,), dtype=torch.int32, device=x.device)
    launch = Launch(
        _best_match,
        (blocks(evens, TILE_TOKENS),),
        {"p_x": x, "p_score": score, "p_place": match, "tokens": tokens, "dim": dim},
        {"T_TOKENS": TILE_TOKENS, "T_INNER": TILE_INNER},
    )
    return score, match, [launch]


def plan_merge(
    x: Tensor, size: Tensor, merged: Tensor, match: Tensor
) -> tuple[Tensor, Tensor, list[Launch]]:
    """Odd tokens, their sizes and the launch that fills them; arguments as of `merge`."""
    expect(x, "x", (None, None), *FLOATS)
    tokens, dim = x.shape
    expect(size, "size", (tokens,), torch.float32)
    expect(merged, "merged", (None,), torch.int32)
    expect(match, "match", ((tokens + 1) // 2,), torch.int32)
    expect_contiguous(x=x, size=size, merged=merged, match=match)
    odds = tokens // 2
    out = torch.empty((odds, dim), dtype=x.dtype, device=x.device)
    out_size = torch.empty((odds,), dtype=torch.float32, device=x.device)
    launch = Launch(
        _merge,
        (odds, blocks(dim, LIST_DIM)),
        {
            "p_x": x,
            "p_size": size,
            "p_merged": merged,
            "p_match": match,
            "p_out": out,
            "p_out_size": out_size,
            "merged": merged.shape[0],
            "dim": dim,
        },
        {"T_LIST": TILE_LIST, "T_DIM": LIST_DIM},
    )
    return out, out_size, [launch]


def pool_grid(x: Tensor, by: int) -> Tensor:
    """x [H, W, D] -> [ceil(H / by), ceil(W / by), D], means in fp32. Raises KernelInputError."""
    out, launches = plan_pool(x, by)
    run(launches)
    return out


def best_match(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [T, D] -> cosine fp32 and odd place int32 of each even token's most similar odd one.

    A token of zeros has cosine 0 with all. Raises KernelInputError.
    """
    score, match, launches = plan_match(x)
    run(launches)
    return score, match


def merge(x: Tensor, size: Tensor, merged: Tensor, match: Tensor) -> tuple[Tensor, Tensor]:
    """Odd tokens [T // 2, D] and their sizes once the even ones `merged` int32 are taken in.

    size fp32 [T]: how many tokens each stands for; match of `best_match`. The even tokens that are
    not in `merged` stay as they are: the caller has them. Raises KernelInputError.
    """
    out, out_size, launches = plan_merge(x, size, merged, match)
    run(launches)
    return out, out_size
