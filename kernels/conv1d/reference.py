"""Plain torch convolution followed by GELU."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def conv1d_gelu(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """x [T, channels], weight [outputs, channels, taps], bias [outputs] -> [rows, outputs]."""
    return F.gelu(F.conv1d(x.T[None], weight, bias, stride=stride))[0].T.contiguous()
