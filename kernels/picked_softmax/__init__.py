"""Softmax of rows of logits, evaluated at one entry per row: a probability or its log. The entry is
given, or is the largest."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.native import library, require, threads
from headstart.kernels.picked_softmax import reference

__all__ = ["best_log_softmax", "picked_log_softmax", "picked_softmax"]


def _declare(lib: ctypes.CDLL) -> None:
    void, long, integer = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
    lib.hs_picked_softmax.argtypes = [void, void, long, long, integer, void, integer]
    lib.hs_picked_softmax.restype = None
    lib.hs_best_log_softmax.argtypes = [void, void, void, long, long, void, void, integer]
    lib.hs_best_log_softmax.restype = None


def picked_log_softmax(logits: Tensor, ids: Tensor, *, backend: str | None = None) -> Tensor:
    """log_softmax(logits)[i, ids[i]]: fp32 [n, V] and int64 [n] -> fp32 [n].

    Each row must have at least one finite logit and no NaN; others may be minus infinity. Raises
    KernelInputError, and IndexError for an id out of range.
    """
    return _picked(logits, ids, as_log=True, backend=backend)


def picked_softmax(logits: Tensor, ids: Tensor, *, backend: str | None = None) -> Tensor:
    """softmax(logits)[i, ids[i]]; all else as in `picked_log_softmax`."""
    return _picked(logits, ids, as_log=False, backend=backend)


def best_log_softmax(
    logits: Tensor, masks: Tensor, which: Sequence[int], *, backend: str | None = None
) -> tuple[list[int], list[float]]:
    """Of each row of logits [n, V] + masks[which[i]] [V] (fp32; 0 or minus infinity): the first of
    its largest entries, and its log_softmax, with the bits of `picked_log_softmax`.

    Each row must have at least one finite sum and no NaN. Raises KernelInputError, and IndexError
    for a mask that is none.
    """
    require(logits, "logits", (None, None), torch.float32)
    rows, size = logits.shape
    require(masks, "masks", (None, size), torch.float32)
    if len(which) != rows:
        raise KernelInputError(f"expected one mask a row, got {len(which)} for {rows}")
    if rows and not 0 <= min(which) <= max(which) < len(masks):
        raise IndexError(f"masks {min(which)} .. {max(which)} of {len(masks)}")
    lib = library("picked_softmax", _declare, backend)
    if lib is None:
        return reference.best(logits, masks, which)
    logits, masks = logits.contiguous(), masks.contiguous()
    best = (ctypes.c_int64 * rows)()
    out = (ctypes.c_float * rows)()
    lib.hs_best_log_softmax(
        logits.data_ptr(),
        masks.data_ptr(),
        (ctypes.c_int64 * rows)(*which),
        rows,
        size,
        best,
        out,
        threads(),
    )
    return list(best), list(out)


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
