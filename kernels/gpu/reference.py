"""Every operation of this folder in plain torch, in the type that it is given (fp64: the twin)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from headstart.kernels.gpu.packed_weight import PackedWeight, dequantize
from headstart.kernels.gpu.pools import Pools, join
from headstart.kernels.log_mel.tables import FFT_SAMPLES, make_tables
from headstart.kernels.paged_attention.storage import LARGEST, encode, gather


def turns(frequencies: Tensor) -> Tensor:
    """Radians a position, fp64 [n], at most pi -> int64 [n] in units of 2^-64 of a turn.

    At position p the angle is wrong by at most p * 2^-54 of the frequency, as in fp64.
    """
    parts = [round(value / math.tau * 2.0**64) for value in frequencies.tolist()]
    return torch.tensor([(part + 2**63) % 2**64 - 2**63 for part in parts], dtype=torch.int64)


def paged_attention(
    q: Tensor,
    pools: Pools,
    tables: Tensor,
    starts: Tensor,
    contexts: Tensor,
    scale: float,
    *,
    window: int = 0,
    sink: int = 0,
    rounded: torch.dtype | None = None,
) -> Tensor:
    """Arguments as of the kernel -> [rows, heads, D] in q's type, computed in it.

    `rounded`: what the kernel rounds weights to before they meet values, the largest being 1.
    """
    k_pool, v_pool = join(pools.k, pools.k_scale), join(pools.v, pools.v_scale)
    kv_heads, block_size, heads = pools.k.shape[1], pools.k.shape[2], q.shape[1]
    out = torch.zeros_like(q)
    for seq, context in enumerate(contexts.tolist()):
        first, last = int(starts[seq]), int(starts[seq + 1])
        ids = tables[seq, : -(-context // block_size)].long()
        keys, values = (gather(pool, ids, context).to(q.dtype) for pool in (k_pool, v_pool))
        for row in range(first, last):
            sees = context - (last - row) + 1
            at = torch.arange(sees)
            if window:
                at = at[(at < sink) | (at >= sees - window)]
            grouped = q[row].reshape(kv_heads, heads // kv_heads, -1)
            scores = torch.einsum("hgd,htd->hgt", grouped, keys[:, at]) * scale
            weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
            total = weights.sum(dim=-1, keepdim=True)
            if rounded is not None:
                weights = weights.to(rounded).to(q.dtype)
            out[row] = (weights @ values[:, at] / total).reshape(heads, -1)
    return out


def angles(positions: Tensor, frequencies: Tensor, sections: Sequence[int] = ()) -> Tensor:
    """positions [rows] or [3, rows], frequencies fp64 [n] -> angles fp64 [rows, n]."""
    if not sections:
        return torch.outer(positions.double(), frequencies)
    axis = torch.repeat_interleave(torch.arange(3), torch.tensor(list(sections)))
    return positions[axis].T.double() * frequencies


def rope(x: Tensor, angle: Tensor) -> Tensor:
    """x [rows, heads, D] in fp32 or fp64, angle fp64 [rows, D / 2] -> x turned, halves together."""
    cos, sin = angle.cos().to(x.dtype)[:, None], angle.sin().to(x.dtype)[:, None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def write(codes: Tensor, scale: Tensor | None, rows: Tensor, slots: Tensor) -> None:
    """rows [n, kv_heads, D] -> one of the pools, in place; negative slots are left out."""
    block_size, kept = codes.shape[2], slots >= 0
    slots, encoded = slots[kept], encode(rows[kept], codes.dtype)
    block, offset = slots // block_size, slots % block_size
    if codes.dtype not in LARGEST:
        codes[block, :, offset] = encoded
        return
    assert scale is not None
    raw, head_dim = encoded.view(torch.int8), codes.shape[3]
    codes.view(torch.int8)[block, :, offset] = raw[..., :head_dim]
    scale[block, :, offset] = raw[..., head_dim:].contiguous().view(torch.float32)[..., 0]


def rms_norm(
    x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """The norm in x's type, and the sum in residual's, rounded before it is normed."""
    added = None if residual is None else (x + residual).to(residual.dtype)
    summed = x if added is None else added.to(x.dtype)
    mean = summed.square().mean(dim=-1, keepdim=True)
    return summed * torch.rsqrt(mean + eps) * weight.to(x.dtype), added


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """gate * sigmoid(gate) * up."""
    return torch.nn.functional.silu(gate) * up


def packed_matmul(x: Tensor, w: PackedWeight, bias: Tensor | None = None) -> Tensor:
    """x [rows, K] in fp32 or fp64 -> x W^T + bias in its type."""
    added = None if bias is None else bias.to(x.dtype)
    return torch.nn.functional.linear(x, dequantize(w, x.dtype), added)


def log_mel(samples: Tensor, mels: int, hop: int) -> Tensor:
    """samples [n], fp32 or fp64 -> [frames, mels] of its type."""
    tables = make_tables(mels)
    frames = samples.unfold(0, FFT_SAMPLES, hop) * tables.window.to(samples.dtype)
    power = torch.fft.rfft(frames).abs().square()
    decades: Tensor = (power @ tables.filters.to(samples.dtype)).clamp_min(1e-10).log10()
    return decades


def frame_scores(frames: Tensor, before: Tensor | None = None) -> Tensor:
    """frames uint8 [F, H, W, 3] -> fp64 [F, 3]: motion, content, sharpness; OpenCV's integers."""
    whole = frames if before is None else torch.cat((before[None], frames))
    luma, hsv = _luma(whole), _hsv(whole)
    motion = torch.zeros(len(whole), dtype=torch.float64)
    content = torch.zeros(len(whole), dtype=torch.float64)
    motion[1:] = (luma[1:] - luma[:-1]).abs().double().mean(dim=(1, 2))
    content[1:] = (hsv[1:] - hsv[:-1]).abs().double().mean(dim=(1, 2, 3))
    rows, columns = (_mirrored(n) for n in luma.shape[1:])
    wide = luma[:, rows][:, :, columns]
    across = wide[:, 1:-1, :-2] + wide[:, 1:-1, 2:]
    laplacian = wide[:, :-2, 1:-1] + wide[:, 2:, 1:-1] + across - 4 * luma
    sharpness = laplacian.double().flatten(1).var(dim=1, correction=0)
    scores = torch.stack((motion, content, sharpness), dim=1)
    return scores if before is None else scores[1:]


def _mirrored(size: int) -> Tensor:
    """Indices from -1 to `size`, those outside mirrored at the outermost ones."""
    at = torch.arange(-1, size + 1).abs()
    return (size - 1 - (size - 1 - at).abs()).clamp(0, size - 1)


def _luma(rgb: Tensor) -> Tensor:
    red, green, blue = rgb.long().unbind(dim=-1)
    return (red * 9798 + green * 19235 + blue * 3735 + 16384) >> 15


def _hsv(rgb: Tensor) -> Tensor:
    """OpenCV's 8-bit hue (0 to 179), saturation and value, int64 [..., 3]."""
    red, green, blue = rgb.long().unbind(dim=-1)
    value = rgb.long().amax(dim=-1)
    spread = value - rgb.long().amin(dim=-1)
    part = torch.where(value == green, blue - red + 2 * spread, red - green + 4 * spread)
    part = torch.where(value == red, green - blue, part)
    by = (180 * 4096 / (6 * spread.clamp_min(1)).double()).round().long()
    hue = (part * by + 2048) >> 12
    by = torch.where(value > 0, (255 * 4096 / value.clamp_min(1).double()).round().long(), 0)
    saturation = (spread * by + 2048) >> 12
    return torch.stack((torch.where(hue < 0, hue + 180, hue), saturation, value), dim=-1)


def pool_grid(x: Tensor, by: int) -> Tensor:
    """x [H, W, D] -> means of squares of by * by, what is there of them at the edges."""
    rows = []
    for top in range(0, x.shape[0], by):
        row = [
            x[top : top + by, left : left + by].flatten(0, 1).mean(dim=0)
            for left in range(0, x.shape[1], by)
        ]
        rows.append(torch.stack(row))
    return torch.stack(rows)


def cosines(x: Tensor) -> Tensor:
    """x [T, D] -> [evens, odds]: of each even token with each odd one, 0 with zeros."""
    unit = x / x.norm(dim=-1, keepdim=True).clamp_min(1e-15)
    between: Tensor = unit[::2] @ unit[1::2].T
    return between


def merge(x: Tensor, size: Tensor, merged: Tensor, match: Tensor) -> tuple[Tensor, Tensor]:
    """Odd tokens and their sizes, once the even ones `merged` are taken in."""
    even = merged.long()
    total, sizes = x[1::2] * size[1::2, None], size[1::2].clone()
    total.index_add_(0, match[even].long(), x[2 * even] * size[2 * even, None])
    sizes.index_add_(0, match[even].long(), size[2 * even])
    return total / sizes[:, None], sizes
