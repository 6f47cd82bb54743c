"""Matmul with GGUF-quantised weights: y[M, N] = x[M, K] W[N, K]^T + bias[N].

The native kernel quantises activations to int8 in groups of 32 and is bitwise batch-invariant: row
i of the output depends on row i of the input only, whatever M and the thread count. See README.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.kernels.memory import Arena
from headstart.kernels.native import default_backend, library, require
from headstart.kernels.qlinear import native, reference
from headstart.kernels.qlinear.formats import (
    FORMATS,
    UnknownKindError,
    WeightShapeError,
    check_blocks,
    check_shape,
    lookup,
)
from headstart.kernels.qlinear.panels import panel_bytes, panel_count

__all__ = [
    "FORMATS",
    "QWeight",
    "UnknownKindError",
    "WeightShapeError",
    "dequantize",
    "pack",
    "panel_shape",
    "qlinear",
    "qlinear_many",
    "rows",
]


@dataclass(frozen=True, eq=False)
class QWeight:
    """A weight W[rows, cols] of GGUF kind `kind`, its bytes in panels of 16 rows (panels.py)."""

    kind: str
    rows: int
    cols: int
    panels: Tensor = field(repr=False)  # uint8 [ceil(rows / 16), panel_bytes]
    dense: list[Tensor] = field(default_factory=list, repr=False)  # at most one: see _dense

    @property
    def nbytes(self) -> int:
        return self.panels.numel()


_weights = Arena()


def panel_shape(kind: str, rows: int, cols: int) -> tuple[int, int]:
    """Shape of `QWeight.panels`. Raises UnknownKindError, WeightShapeError."""
    form = check_blocks(kind, rows, cols)
    return panel_count(rows), panel_bytes(form, cols)


def pack(
    kind: str,
    raw: npt.NDArray[np.uint8] | memoryview,
    rows: int,
    cols: int,
    *,
    backend: str | None = None,
) -> QWeight:
    """Repack the bytes of a GGUF tensor [rows, cols] (row-major, K innermost).

    Lossless: `dequantize` gives the GGUF's values. Raises UnknownKindError, WeightShapeError.
    """
    array = np.frombuffer(raw, np.uint8) if isinstance(raw, memoryview) else raw
    flat = np.ascontiguousarray(array).reshape(-1)
    form = check_shape(kind, flat.size, rows, cols)
    lib = library("qlinear", native.declare, backend)
    if lib is None:
        return QWeight(kind, rows, cols, reference.pack_panels(kind, flat, rows, cols))
    shape = panel_shape(kind, rows, cols)
    panels = _weights.take(shape[0] * shape[1]).view(shape)
    native.pack_panels(lib, form.code, flat, rows, cols, panels)
    return QWeight(kind, rows, cols, panels)


def dequantize(w: QWeight, *, backend: str | None = None) -> Tensor:
    """W as fp32 [rows, cols]."""
    lib = library("qlinear", native.declare, backend)
    if lib is None:
        return reference.dequantize(w.kind, w.panels, w.rows, w.cols)
    return native.gather_rows(lib, lookup(w.kind).code, w.panels, w.cols, None, w.rows)


def rows(w: QWeight, ids: Tensor, *, backend: str | None = None) -> Tensor:
    """Rows `ids` (int64 [n]) of W as fp32 [n, cols]; raises IndexError for an id out of range."""
    require(ids, "ids", (None,), torch.int64)
    if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= w.rows):
        raise IndexError(f"row ids {int(ids.min())} .. {int(ids.max())} of a {w.rows}-row weight")
    lib = library("qlinear", native.declare, backend)
    if lib is None:
        return reference.gather_rows(w.kind, w.panels, w.cols, ids)
    code = lookup(w.kind).code
    return native.gather_rows(lib, code, w.panels, w.cols, ids.contiguous(), ids.numel())


def qlinear(
    x: Tensor, w: QWeight, bias: Tensor | None = None, *, backend: str | None = None
) -> Tensor:
    """x fp32 [M, K] -> fp32 [M, N]: x W^T + bias (fp32 [N]). Raises KernelInputError."""
    return qlinear_many(x, [w], [bias], backend=backend)[0]


def qlinear_many(
    x: Tensor,
    ws: Sequence[QWeight],
    biases: Sequence[Tensor | None] | None = None,
    *,
    backend: str | None = None,
) -> list[Tensor]:
    """x fp32 [M, K] through several weights of the same K: a list of fp32 [M, N_i].

    Quantises x once and runs one parallel region. A row of x that holds a NaN or an infinity gives
    a row of NaN through quantised weights. Raises KernelInputError.
    """
    each = biases if biases is not None else [None] * len(ws)
    for w, bias in zip(ws, each, strict=True):
        require(x, "x", (None, w.cols), torch.float32)
        if bias is not None:
            require(bias, "bias", (w.rows,), torch.float32)
    lib = library("qlinear", native.declare, backend)
    if lib is None:
        return [reference.linear(x, _dense(w), b) for w, b in zip(ws, each, strict=True)]
    parts = [
        (FORMATS[w.kind].code, w.rows, w.panels, None if b is None else b.contiguous())
        for w, b in zip(ws, each, strict=True)
    ]
    return native.linear(lib, x.contiguous(), parts)


def _dense(w: QWeight) -> Tensor:
    """W in fp32 for the reference. Cached if the reference is the default backend: decoding it in
    every call would take seconds per token; the cache takes 4 bytes per weight."""
    if default_backend() != "reference":
        return reference.dequantize(w.kind, w.panels, w.rows, w.cols)
    if not w.dense:
        w.dense.append(reference.dequantize(w.kind, w.panels, w.rows, w.cols))
    return w.dense[0]
