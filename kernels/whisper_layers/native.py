"""ctypes glue of the C kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headstart.kernels.errors import KernelMemoryError
from headstart.kernels.native import threads
from headstart.kernels.qlinear import FORMATS
from headstart.kernels.qlinear.native import NativeWeight

if TYPE_CHECKING:
    from headstart.kernels.whisper_layers import Layer, Linear, Sequence, WhisperLayers

_VOID, _LONG = ctypes.c_void_p, ctypes.c_int64


class _Norm(ctypes.Structure):
    _fields_ = (("weight", _VOID), ("bias", _VOID))


class NativeLayer(ctypes.Structure):
    """`Layer` of kernel.c."""

    _fields_ = (
        *((name, _Norm) for name in ("self_norm", "cross_norm", "mlp_norm")),
        *((n, NativeWeight) for n in ("qkv", "out", "cross_q", "cross_out", "up", "down")),
    )


class _Memory(ctypes.Structure):
    _fields_ = (("data", _VOID), ("layer", _LONG), ("row", _LONG), ("head", _LONG))


class _Sequence(ctypes.Structure):
    """`Sequence` of kernel.c."""

    _fields_ = (
        *((name, _LONG) for name in ("rows", "before", "keep", "far", "heard", "beyond")),
        *((name, _Memory) for name in ("k", "v", "far_k", "far_v")),
        *((name, _Memory) for name in ("heard_k", "heard_v", "beyond_k", "beyond_v")),
        ("seen", _VOID),
    )


class _Call(ctypes.Structure):
    """`Call` of kernel.c."""

    _fields_ = (
        *((n, _LONG) for n in ("first", "end", "width", "heads", "ffn", "causal", "sequences")),
        ("watched", _LONG),
        *((name, _VOID) for name in ("layer", "sequence", "watch", "x")),
        ("threads", _LONG),
    )


LayerTable = ctypes.Array[NativeLayer]


def declare(library: ctypes.CDLL) -> None:
    """Argument types of kernel.c."""
    library.hs_whisper_layers.argtypes = [_VOID]
    library.hs_whisper_layers.restype = _LONG


def _weight(linear: Linear | None) -> NativeWeight:
    if linear is None:
        return NativeWeight()
    weight, bias = linear.weight, linear.bias
    at = None if bias is None else bias.data_ptr()
    return NativeWeight(FORMATS[weight.kind].code, weight.rows, weight.panels.data_ptr(), at, None)


def _norm(pair: tuple[Tensor, Tensor] | None) -> _Norm:
    return _Norm() if pair is None else _Norm(pair[0].data_ptr(), pair[1].data_ptr())


def layer_table(layers: Many[Layer]) -> LayerTable:
    """The layers as the kernel reads them; valid while `layers` live."""
    return (NativeLayer * len(layers))(*(_layer(layer) for layer in layers))


def _layer(layer: Layer) -> NativeLayer:
    cross = layer.cross
    return NativeLayer(
        _norm(layer.self_norm),
        _norm(None if cross is None else cross.norm),
        _norm(layer.mlp_norm),
        _weight(layer.qkv),
        _weight(layer.out),
        _weight(None if cross is None else cross.q),
        _weight(None if cross is None else cross.out),
        _weight(layer.up),
        _weight(layer.down),
    )


def _memory(tensor: Tensor | None) -> _Memory:
    """[layers, heads, rows, d]."""
    if tensor is None:
        return _Memory()
    layer, head, row, _ = tensor.stride()
    return _Memory(tensor.data_ptr(), layer, row, head)


def _length(keys: Tensor | None) -> int:
    return 0 if keys is None else keys.shape[2]


def whisper_layers(
    library: ctypes.CDLL,
    model: WhisperLayers,
    table: LayerTable,
    x: Tensor,
    sequences: Many[Sequence],
    watched: Many[tuple[int, int]],
    layers: tuple[int, int],
) -> tuple[Tensor, list[Tensor]]:
    """Shapes as in `WhisperLayers`, checked; x is not written to."""
    x = x.clone(memory_format=torch.contiguous_format)
    seen = [torch.empty(len(watched), s.rows, s.heard) for s in sequences]
    batch = (_Sequence * len(sequences))(
        *(
            _Sequence(
                s.rows,
                s.before,
                s.keep,
                _length(s.far_k),
                _length(s.heard_k),
                _length(s.beyond_k),
                _memory(s.k),
                _memory(s.v),
                _memory(s.far_k),
                _memory(s.far_v),
                _memory(s.heard_k),
                _memory(s.heard_v),
                _memory(s.beyond_k),
                _memory(s.beyond_v),
                out.data_ptr() if out.numel() else None,
            )
            for s, out in zip(sequences, seen, strict=True)
        )
    )
    watch = (_LONG * (2 * len(watched)))(*(number for pair in watched for number in pair))
    call = _Call(
        *layers, model.width, model.heads, model.ffn, model.causal, len(sequences),
        len(watched), ctypes.addressof(table), ctypes.addressof(batch), ctypes.addressof(watch),
        x.data_ptr(), threads(),
    )  # fmt: skip
    if library.hs_whisper_layers(ctypes.addressof(call)):
        raise KernelMemoryError("the activations of the layers")
    return x, seen
