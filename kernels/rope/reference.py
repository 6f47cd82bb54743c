"""Plain torch rotary embedding, halves rotated against each other."""

from __future__ import annotations

import torch
from torch import Tensor


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x fp32 [rows, heads, D], cos and sin fp32 [rows, D / 2] -> fp32 [rows, heads, D]."""
    first, second = x.chunk(2, dim=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return torch.cat([first * c - second * s, second * c + first * s], dim=-1)
