"""Layer norm over the last axis: y = (x - mean) / sqrt(variance + 1e-5) * weight + bias."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.layer_norm import reference
from headstart.kernels.native import library, require, threads

__all__ = ["WIDTH_STEP", "layer_norm"]

# Widths must be a multiple of this.
WIDTH_STEP = 8


def _declare(lib: ctypes.CDLL) -> None:
    void, long = ctypes.c_void_p, ctypes.c_int64
    lib.hs_layer_norm.argtypes = [void, void, void, long, long, void, ctypes.c_int]
    lib.hs_layer_norm.restype = None


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, *, backend: str | None = None) -> Tensor:
    """x fp32 [rows, D], weight and bias fp32 [D] -> fp32 [rows, D]; D is a multiple of eight.

    Raises KernelInputError.
    """
    require(x, "x", (None, None), torch.float32)
    rows, size = x.shape
    for tensor, name in ((weight, "weight"), (bias, "bias")):
        require(tensor, name, (size,), torch.float32)
    if size % WIDTH_STEP:
        raise KernelInputError(
            f"x: expected a width that is a multiple of {WIDTH_STEP}, got {size}"
        )
    lib = library("layer_norm", _declare, backend)
    if lib is None:
        return reference.layer_norm(x, weight, bias)
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    out = torch.empty((rows, size), dtype=torch.float32)
    lib.hs_layer_norm(
        x.data_ptr(), weight.data_ptr(), bias.data_ptr(), rows, size, out.data_ptr(), threads()
    )
    return out
