"""Operations that the models are made of, in plain torch.

Weights may be bf16, fp16, fp32 or fp64. On the CPU activations, products and sums are fp32, or fp64
with fp64 weights. So the only error of bf16 weights is the checkpoint's own rounding. On a GPU
products take and give the weights' type, as its matrix units do, and what is added up over the
layers is fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

# Weights are converted to a wider dtype in stripes of this many: 2 MiB of fp32, which fits a core's
# cache. Torch's own bf16 product rounds its input and output, and takes four times as long where
# the processor has no bf16 instructions (docs/models.md).
STRIPE_WEIGHTS = 1 << 19


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of activations beside weights of `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def onto(x: Tensor, device: torch.device) -> Tensor:
    """x on `device`; from the host to a GPU by way of pinned memory, without waiting."""
    if device.type == "cuda" and x.device.type == "cpu":
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)


def on_matrix_units(weight: Tensor) -> bool:
    """Whether products with `weight` are in its own type."""
    return weight.device.type == "cuda"


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """y = x W^T + b; `weight` [out, in]."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out], in the activations' dtype; on a GPU in the weights'."""
        if on_matrix_units(self.weight):
            return F.linear(x.to(self.weight.dtype), self.weight, self.bias)
        dtype = compute_dtype(self.weight.dtype)
        x = x.to(dtype)
        exact = self.weight.dtype == dtype
        y = F.linear(x, self.weight) if exact else linear_widened(x, self.weight)
        return y if self.bias is None else y + self.bias.to(dtype)


def linear_widened(x: Tensor, weight: Tensor) -> Tensor:
    """x W^T in x's dtype; x [..., in], weight [out, in]. Converts one stripe of W at a time."""
    rows = max(1, STRIPE_WEIGHTS // weight.shape[1])
    parts = [F.linear(x, stripe.to(x.dtype)) for stripe in torch.split(weight, rows)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


@dataclass(frozen=True, slots=True, eq=False)
class RmsNorm:
    """Root mean square norm over the last dimension."""

    weight: Tensor  # [width]
    eps: float

    def __post_init__(self) -> None:
        _widen(self, "weight")

    def __call__(self, x: Tensor) -> Tensor:
        mean_square = x.square().mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight.to(x.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class LayerNorm:
    """Layer norm over the last dimension."""

    weight: Tensor  # [width]
    bias: Tensor  # [width]
    eps: float

    def __post_init__(self) -> None:
        _widen(self, "weight", "bias")

    def __call__(self, x: Tensor) -> Tensor:
        width = (x.shape[-1],)
        return F.layer_norm(x, width, self.weight.to(x.dtype), self.bias.to(x.dtype), self.eps)


def _widen(norm: RmsNorm | LayerNorm, *names: str) -> None:
    """Hold its few numbers as they are used: each conversion would be a kernel of its own."""
    for name in names:
        weight = getattr(norm, name)
        object.__setattr__(norm, name, weight.to(compute_dtype(weight.dtype)))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each head's halves against each other: x [rows, heads, D], cos, sin [rows, D / 2]."""
    first, second = x.chunk(2, dim=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return torch.cat([first * c - second * s, second * c + first * s], dim=-1)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Attention of q [batch, rows, heads, D] over k and v [batch, keys, heads, D]; `mask`
    [rows, keys], True: visible. Returns [batch, rows, heads * D]."""
    heads = F.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask
    )
    return heads.transpose(1, 2).flatten(2)


def attend_in_groups(q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int]) -> Tensor:
    """Attention within consecutive groups of rows: [rows, heads, D] -> [rows, heads * D].

    `lengths`: rows of each group. Neighbouring groups of equal length share one call.
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
