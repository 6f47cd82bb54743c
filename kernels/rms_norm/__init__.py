"""Root-mean-square norm over the last axis: y = x / sqrt(mean(x^2) + eps) * weight."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from headstart.kernels.native import library, require, threads
from headstart.kernels.rms_norm import reference

__all__ = ["rms_norm"]


def _declare(lib: ctypes.CDLL) -> None:
    void, long = ctypes.c_void_p, ctypes.c_int64
    lib.hs_rms_norm.argtypes = [void, void, long, long, ctypes.c_float, void, ctypes.c_int]
    lib.hs_rms_norm.restype = None


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, backend: str | None = None) -> Tensor:
    """x fp32 [rows, D], weight fp32 [D] -> fp32 [rows, D]. Raises KernelInputError."""
    require(x, "x", (None, None), torch.float32)
    require(weight, "weight", (x.shape[1],), torch.float32)
    lib = library("rms_norm", _declare, backend)
    if lib is None:
        return reference.rms_norm(x, weight, eps)
    x, weight, (rows, size) = x.contiguous(), weight.contiguous(), x.shape
    out = torch.empty((rows, size), dtype=torch.float32)
    lib.hs_rms_norm(x.data_ptr(), weight.data_ptr(), rows, size, eps, out.data_ptr(), threads())
    return out
