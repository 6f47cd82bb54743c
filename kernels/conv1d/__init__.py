"""Convolution over time followed by GELU: y = gelu(conv(x) + bias), rows of channels in and out.

The kernel's bits are the same for any cut of the rows, any number of threads and any processor. See
README.md.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headstart.kernels.conv1d import reference
from headstart.kernels.errors import KernelInputError
from headstart.kernels.native import library, require, threads

__all__ = ["ConvWeight", "conv1d_gelu", "pack"]

PANEL = 16  # outputs side by side, as in kernel.c


@dataclass(frozen=True, eq=False)
class ConvWeight:
    """A weight [outputs, channels, taps] in panels, and its bias fp32 [outputs].

    `panels` fp32 [ceil(outputs / 16), taps * channels, 16].
    """

    outputs: int
    channels: int
    taps: int
    panels: Tensor = field(repr=False)
    bias: Tensor = field(repr=False)


def pack(weight: Tensor, bias: Tensor) -> ConvWeight:
    """Pack a weight fp32 [outputs, channels, taps], as in `torch.nn.Conv1d`, and bias [outputs].

    Raises KernelInputError.
    """
    require(weight, "weight", (None, None, None), torch.float32)
    outputs, channels, taps = weight.shape
    require(bias, "bias", (outputs,), torch.float32)
    count = -(-outputs // PANEL)
    rows = torch.zeros(count * PANEL, taps * channels)
    rows[:outputs] = weight.detach().transpose(1, 2).reshape(outputs, -1)
    panels = rows.view(count, PANEL, -1).transpose(1, 2).contiguous()
    return ConvWeight(outputs, channels, taps, panels, bias.detach().contiguous())


def conv1d_gelu(
    x: Tensor, weight: ConvWeight, stride: int = 1, *, backend: str | None = None
) -> Tensor:
    """x fp32 [T, channels] -> fp32 [(T - taps) // stride + 1, outputs], nothing padded.

    Raises KernelInputError.
    """
    require(x, "x", (None, weight.channels), torch.float32)
    if len(x) < weight.taps or stride < 1:
        raise KernelInputError(
            f"x: expected at least {weight.taps} rows and a stride above 0, got {len(x)} rows "
            f"and {stride}"
        )
    lib = library("conv1d", _declare, backend)
    if lib is None:
        return reference.conv1d_gelu(x, unpack(weight), weight.bias, stride)
    x = x.contiguous()
    rows = (len(x) - weight.taps) // stride + 1
    out = torch.empty((rows, weight.outputs), dtype=torch.float32)
    lib.hs_conv1d(
        x.data_ptr(), weight.panels.data_ptr(), weight.bias.data_ptr(), rows, weight.outputs,
        weight.taps * weight.channels, stride * weight.channels, out.data_ptr(), threads(),
    )  # fmt: skip
    return out


def unpack(weight: ConvWeight) -> Tensor:
    """The original weight [outputs, channels, taps]."""
    rows = weight.panels.transpose(1, 2).reshape(-1, weight.taps, weight.channels)
    return rows[: weight.outputs].transpose(1, 2)


def _declare(lib: ctypes.CDLL) -> None:
    void, long = ctypes.c_void_p, ctypes.c_int64
    lib.hs_conv1d.argtypes = [void, void, void, long, long, long, long, void, ctypes.c_int]
    lib.hs_conv1d.restype = None
