"""Softmax of rows of logits, evaluated at one entry per row: a probability or its log."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from headstart.kernels.native import library, require, threads
from headstart.kernels.picked_softmax import reference

__all__ = ["picked_log_softmax", "picked_softmax"]


def _declare(lib: ctypes.CDLL) -> None:
    void, long, integer = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    lib.hs_picked_softmax.argtypes = [void, void, long, long, integer, void, integer]
    lib.hs_picked_softmax.restype = None


def picked_log_softmax(logits: Tensor, ids: Tensor, *, backend: str | None = None) -> Tensor:
    """log_softmax(logits)[i, ids[i]]: fp32 [n, V] and int64 [n] -> fp32 [n].

    Each row must have at least one finite logit and no NaN; others may be minus infinity. Raises
    KernelInputError, and IndexError for an id out of range.
    """
    return _picked(logits, ids, as_log=True, backend=backend)


def picked_softmax(logits: Tensor, ids: Tensor, *, backend: str | None = None) -> Tensor:
    """softmax(logits)[i, ids[i]]; all else as in `picked_log_softmax`."""
    return _picked(logits, ids, as_log=False, backend=backend)


def _picked(logits: Tensor, ids: Tensor, *, as_log: bool, backend: str | None) -> Tensor:
    require(logits, "logits", (None, None), torch.float32)
    rows, size = logits.shape
    require(ids, "ids", (rows,), torch.int64)
    if rows and (int(ids.min()) < 0 or int(ids.max()) >= size):
        raise IndexError(f"ids {int(ids.min())} .. {int(ids.max())} of {size} logits")
    lib = library("picked_softmax", _declare, backend)
    if lib is None:
        return reference.picked(logits, ids, as_log=as_log)
    logits, ids = logits.contiguous(), ids.contiguous()
    out = torch.empty(rows, dtype=torch.float32)
    lib.hs_picked_softmax(
        logits.data_ptr(), ids.data_ptr(), rows, size, as_log, out.data_ptr(), threads()
    )
    return out
