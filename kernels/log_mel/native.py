"""ctypes glue of the C kernel."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headstart.kernels.log_mel.tables import Tables
from headstart.kernels.native import threads

_VOID, _LONG = ctypes.c_void_p, ctypes.c_int64


class _Tables(ctypes.Structure):
    """`Tables` of kernel.c."""

    _fields_ = (
        *((n, _VOID) for n in ("cosine", "sine", "window", "first", "count", "weights")),
        ("mels", _LONG),
    )


@dataclass(frozen=True, eq=False)
class NativeTables:
    """The kernel's input; `parts` are the tensors it points into."""

    table: _Tables = field(repr=False)
    parts: tuple[Tensor, ...] = field(repr=False)


def declare(library: ctypes.CDLL) -> None:
    """Argument types of kernel.c."""
    library.hs_log_mel.argtypes = [_VOID, _VOID, _LONG, _LONG, _VOID, ctypes.c_int]
    library.hs_log_mel.restype = None


def native_tables(tables: Tables) -> NativeTables:
    """The filters as spans of bins, since a triangle is zero nearly everywhere."""
    spans = [column.nonzero()[:, 0] for column in tables.filters.T]
    first = torch.tensor([int(s[0]) if len(s) else 0 for s in spans], dtype=torch.int32)
    count = torch.tensor([len(s) for s in spans], dtype=torch.int32)
    weights = torch.cat([tables.filters[s, mel] for mel, s in enumerate(spans)])
    parts = (tables.cosine, tables.sine, tables.window, first, count, weights)
    return NativeTables(_Tables(*(part.data_ptr() for part in parts), tables.mels), parts)


def log_mel(
    library: ctypes.CDLL, tables: NativeTables, mels: int, samples: Tensor, frames: int, hop: int
) -> Tensor:
    """Shapes as in `LogMelFilters`, checked."""
    samples = samples.contiguous()
    out = torch.empty((frames, mels), dtype=torch.float64)
    if frames:
        library.hs_log_mel(
            ctypes.addressof(tables.table),
            samples.data_ptr(),
            frames,
            hop,
            out.data_ptr(),
            threads(),
        )
    return out
