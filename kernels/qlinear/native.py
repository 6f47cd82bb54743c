"""ctypes glue of the C kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from headstart.kernels.errors import KernelMemoryError
from headstart.kernels.native import threads
from headstart.kernels.qlinear.formats import U8

_VOID, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64


class NativeWeight(ctypes.Structure):
    """`Weight` of kernels.h."""

    _fields_ = (
        ("kind", _INT),
        ("rows", _LONG),
        ("panels", _VOID),
        ("bias", _VOID),
        ("out", _VOID),
    )


def declare(library: ctypes.CDLL) -> None:
    """Argument types of pack.c and kernel.c."""
    library.hs_pack.argtypes = [_INT, _VOID, _LONG, _LONG, _VOID, _INT]
    library.hs_pack.restype = None
    library.hs_rows.argtypes = [_INT, _VOID, _LONG, _VOID, _LONG, _VOID, _INT]
    library.hs_rows.restype = None
    library.hs_qlinear.argtypes = [_VOID, _LONG, _LONG, _INT, _VOID, _INT]
    library.hs_qlinear.restype = _INT


def pack_panels(
    library: ctypes.CDLL, code: int, raw: U8, rows: int, cols: int, panels: Tensor
) -> None:
    """GGUF bytes -> `panels`, uint8 [ceil(rows / 16), panel_bytes], filled in place."""
    library.hs_pack(code, raw.ctypes.data, rows, cols, panels.data_ptr(), threads())


def gather_rows(
    library: ctypes.CDLL, code: int, panels: Tensor, cols: int, ids: Tensor | None, count: int
) -> Tensor:
    """fp32 [count, cols]: rows `ids` (contiguous int64, in range), or the first `count` rows."""
    out = torch.empty((count, cols), dtype=torch.float32)
    at = None if ids is None else ids.data_ptr()
    library.hs_rows(code, panels.data_ptr(), cols, at, count, out.data_ptr(), threads())
    return out


def linear(
    library: ctypes.CDLL, x: Tensor, weights: Sequence[tuple[int, int, Tensor, Tensor | None]]
) -> list[Tensor]:
    """x fp32 [M, K], contiguous; weights (code, N, panels, contiguous bias): list of [M, N]."""
    rows, cols = x.shape
    table = (NativeWeight * len(weights))()
    outs = []
    for i, (code, width, panels, bias) in enumerate(weights):
        out = torch.empty((rows, width), dtype=torch.float32)
        outs.append(out)
        at = None if bias is None else bias.data_ptr()
        table[i] = NativeWeight(code, width, panels.data_ptr(), at, out.data_ptr())
    status = library.hs_qlinear(
        x.data_ptr(), rows, cols, len(weights), ctypes.addressof(table), threads()
    )
    if status != 0:
        raise KernelMemoryError(f"the activations of a [{rows}, {cols}] input")
    return outs
