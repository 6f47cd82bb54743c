"""The gated activation of a Llama MLP: silu(gate) * up, silu(g) = g / (1 + e^-g)."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from headstart.kernels.native import library, require, threads
from headstart.kernels.silu_mul import reference

__all__ = ["silu_mul"]


def _declare(lib: ctypes.CDLL) -> None:
    void = ctypes.c_void_p
    lib.hs_silu_mul.argtypes = [void, void, ctypes.c_int64, void, ctypes.c_int]
    lib.hs_silu_mul.restype = None


def silu_mul(gate: Tensor, up: Tensor, *, backend: str | None = None) -> Tensor:
    """gate, up fp32 [rows, D] -> fp32 [rows, D]. Raises KernelInputError."""
    require(gate, "gate", (None, None), torch.float32)
    require(up, "up", tuple(gate.shape), torch.float32)
    lib = library("silu_mul", _declare, backend)
    if lib is None:
        return reference.silu_mul(gate, up)
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    lib.hs_silu_mul(gate.data_ptr(), up.data_ptr(), gate.numel(), out.data_ptr(), threads())
    return out
