"""The operations that the models are made of, in plain torch.

A weight's dtype says how it is kept and multiplied, and never less than fp32 how sums are carried:
what flows between operations is fp32 beside weights of bf16, fp16 or int8, and fp64 beside fp64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


def carried(dtype: torch.dtype) -> torch.dtype:
    """What results beside weights of `dtype` are carried in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """y = x W^T + b; `weight` [out, in]."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out], carried."""
        dtype = self.weight.dtype
        y = F.linear(x.to(dtype), self.weight).to(carried(dtype))
        return y if self.bias is None else y + self.bias.to(y.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class RmsNorm:
    weight: Tensor  # [width]
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight.to(x.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class LayerNorm:
    weight: Tensor  # [width]
    bias: Tensor  # [width]
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        width = (x.shape[-1],)
        return F.layer_norm(x, width, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each head's halves against each other: x [rows, heads, D], cos, sin [rows, D / 2]."""
    first, second = x.chunk(2, dim=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return torch.cat([first * c - second * s, second * c + first * s], dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention [batch, rows, heads, D] over keys [batch, keys, heads, D]; `mask` (True: seen)
    [rows, keys]. Gives [batch, rows, heads * D]."""
    heads = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask
    )
    return heads.transpose(1, 2).flatten(2)


def attend_in_groups(q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int]) -> Tensor:
    """Attention inside of consecutive groups of rows only: [rows, heads, D] -> [rows, heads * D].

    Neighbouring groups of the same length go through in one call.
    """
    out = []
    at = index = 0
    while index < len(lengths):
        length, count = lengths[index], 1
        while index + count < len(lengths) and lengths[index + count] == length:
            count += 1
        rows = slice(at, at + length * count)
        shape = (count, length, *q.shape[1:])
        out.append(attend(*(t[rows].reshape(shape) for t in (q, k, v))).flatten(0, 1))
        at, index = at + length * count, index + count
    return torch.cat(out)
