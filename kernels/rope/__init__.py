"""Rotary position embedding in the half-split form of Llama and Qwen2."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.native import library, require, threads
from headstart.kernels.rope import reference

__all__ = ["rope"]


def _declare(lib: ctypes.CDLL) -> None:
    void, long = ctypes.c_void_p, ctypes.c_int64
    lib.hs_rope.argtypes = [void, void, void, long, long, long, void, ctypes.c_int]
    lib.hs_rope.restype = None


def rope(x: Tensor, cos: Tensor, sin: Tensor, *, backend: str | None = None) -> Tensor:
    """x fp32 [rows, heads, D], cos and sin fp32 [rows, D / 2] -> fp32 [rows, heads, D].

    Raises KernelInputError, also for an odd D.
    """
    require(x, "x", (None, None, None), torch.float32)
    rows, heads, dim = x.shape
    if dim % 2:
        raise KernelInputError(f"x: expected an even head dimension, got {dim}")
    require(cos, "cos", (rows, dim // 2), torch.float32)
    require(sin, "sin", (rows, dim // 2), torch.float32)
    lib = library("rope", _declare, backend)
    if lib is None:
        return reference.rope(x, cos, sin)
    x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
    out = torch.empty((rows, heads, dim), dtype=torch.float32)
    lib.hs_rope(
        x.data_ptr(),
        cos.data_ptr(),
        sin.data_ptr(),
        rows,
        heads,
        dim // 2,
        out.data_ptr(),
        threads(),
    )
    return out
