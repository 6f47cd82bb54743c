"""Plain torch: the definition of every operation here, without quantised activations.

This is the exact reference of every comparison: fp32 matmul on the dequantised weight. It is not
batch-invariant (torch chooses its summation order by shape) and not fast.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.kernels.qlinear.formats import U8, Planes, decode, lookup
from headstart.kernels.qlinear.panels import PANEL, from_panels, panel_bytes, panel_count, to_panels

# Rows decoded at a time: bounds the temporaries of a 150,000-row embedding to some tens of MB.
CHUNK_ROWS = 4096


def pack_panels(kind: str, raw: U8, rows: int, cols: int) -> Tensor:
    """GGUF blocks -> uint8 [panels, panel_bytes], see panels.py."""
    form = lookup(kind)
    out = torch.zeros((panel_count(rows), panel_bytes(form, cols)), dtype=torch.uint8)
    row_bytes = cols // form.block * form.block_bytes
    by_row = raw.reshape(rows, row_bytes)
    for start in range(0, rows, CHUNK_ROWS):
        part = by_row[start : start + CHUNK_ROWS]
        if form.is_float:
            padded = np.zeros((panel_count(len(part)) * PANEL, cols, form.bits // 8), np.uint8)
            padded[: len(part)] = part.reshape(len(part), cols, -1)
            panels = padded.reshape(-1, PANEL, cols, form.bits // 8).swapaxes(1, 2)
        else:
            panels = to_panels(kind, decode(kind, part, len(part), cols))
        flat = np.ascontiguousarray(panels).reshape(panel_count(len(part)), -1)
        out[start // PANEL : start // PANEL + len(flat)] = torch.from_numpy(flat)
    return out


def unpack_panels(kind: str, panels: Tensor, cols: int) -> Tensor:
    """uint8 [P, panel_bytes] -> fp32 [P * 16, cols], exactly the GGUF's values."""
    form = lookup(kind)
    packed = panels.numpy()
    if form.is_float:
        dtype = np.dtype("<f2") if form.bits == 16 else np.dtype("<f4")
        values = packed.view(dtype).reshape(-1, cols, PANEL).swapaxes(1, 2).astype(np.float32)
        return torch.from_numpy(np.ascontiguousarray(values).reshape(-1, cols))
    return torch.from_numpy(_values(kind, from_panels(kind, packed, cols)))


def _values(kind: str, planes: Planes) -> npt.NDArray[np.float32]:
    """W[N, K] of decoded planes."""
    form = lookup(kind)
    rows, cols = planes.q.shape
    scale = planes.scale.astype(np.float32)[..., None]
    if planes.sub_scale is not None:
        subs = planes.sub_scale.view(np.int8) if kind == "Q6_K" else planes.sub_scale
        scale = scale * subs.astype(np.float32)
    codes = planes.q.reshape(rows, -1, form.group).astype(np.float32) - np.float32(form.zero)
    values = scale.reshape(rows, -1, 1) * codes
    if planes.minimum is not None:
        minimum = planes.minimum.astype(np.float32)[..., None]
        if planes.sub_minimum is not None:
            minimum = -(minimum * planes.sub_minimum.astype(np.float32))
        values = values + minimum.reshape(rows, -1, 1)
    return np.ascontiguousarray(values, dtype=np.float32).reshape(rows, cols)


def dequantize(kind: str, panels: Tensor, rows: int, cols: int) -> Tensor:
    """fp32 [rows, cols]."""
    out = torch.empty((rows, cols), dtype=torch.float32)
    step = CHUNK_ROWS // PANEL
    for start in range(0, panels.shape[0], step):
        part = unpack_panels(kind, panels[start : start + step], cols)
        first = start * PANEL
        kept = min(len(part), rows - first)
        out[first : first + kept] = part[:kept]
    return out


def gather_rows(kind: str, panels: Tensor, cols: int, ids: Tensor) -> Tensor:
    """fp32 [len(ids), cols]: rows `ids` of the dequantised weight."""
    out = torch.empty((ids.numel(), cols), dtype=torch.float32)
    for i, row in enumerate(ids.tolist()):
        panel = row // PANEL
        out[i] = unpack_panels(kind, panels[panel : panel + 1], cols)[row % PANEL]
    return out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x fp32 [M, K], weight fp32 [N, K], bias fp32 [N] -> fp32 [M, N]."""
    return torch.nn.functional.linear(x, weight, bias)
