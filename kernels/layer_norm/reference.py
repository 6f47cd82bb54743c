"""Plain torch layer norm."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x [..., D], weight and bias [D] -> (x - mean) / sqrt(variance + 1e-5) * weight + bias."""
    return F.layer_norm(x, x.shape[-1:], weight, bias)
