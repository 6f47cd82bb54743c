"""Plain torch gated activation."""

from __future__ import annotations

import torch
from torch import Tensor


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """gate, up fp32 [rows, D] -> gate * sigmoid(gate) * up."""
    return torch.nn.functional.silu(gate) * up
