"""Plain torch root-mean-square norm."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x fp32 [..., D], weight fp32 [D] -> x / sqrt(mean(x^2) + eps) * weight, fp32 [..., D]."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight
