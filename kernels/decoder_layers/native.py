"""ctypes glue of the C kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headstart.kernels.errors import KernelInputError, KernelMemoryError
from headstart.kernels.native import threads
from headstart.kernels.paged_attention.native import STORED, Attention, types_of
from headstart.kernels.paged_attention.storage import blocks_in
from headstart.kernels.qlinear import FORMATS, QWeight
from headstart.kernels.qlinear.native import NativeWeight

if TYPE_CHECKING:
    from headstart.kernels.decoder_layers import Layer, LayerSizes, Rows

_VOID, _LONG = ctypes.c_void_p, ctypes.c_int64


class NativeLayer(ctypes.Structure):
    """`Layer` of kernel.c."""

    _fields_ = (
        ("attn_norm", _VOID),
        ("ffn_norm", _VOID),
        ("key_scale", _VOID),
        ("qkv", NativeWeight * 3),
        ("attn_out", NativeWeight),
        ("gate_up", NativeWeight * 2),
        ("down", NativeWeight),
    )


class Call(ctypes.Structure):
    """`Call` of kernel.c."""

    _fields_ = (
        *((name, _LONG) for name in ("layers", "hidden", "ffn")),
        *((name, _VOID) for name in ("layer", "k_pools", "v_pools", "x", "cosine", "sine")),
        *((name, _VOID) for name in ("slots", "wanted")),
        ("wanted_rows", _LONG),
        ("out", _VOID),
        ("attention", Attention),
        ("eps", ctypes.c_float),
        ("queries", _VOID),
        ("coded", _VOID),
    )


LayerTable = ctypes.Array[NativeLayer]


def declare(library: ctypes.CDLL) -> None:
    """Argument types of kernel.c."""
    library.hs_decoder_layers.argtypes = [_VOID]
    library.hs_decoder_layers.restype = _LONG


def _weight(weight: QWeight, bias: Tensor | None = None) -> NativeWeight:
    at = None if bias is None else bias.data_ptr()
    return NativeWeight(FORMATS[weight.kind].code, weight.rows, weight.panels.data_ptr(), at, None)


def layer_table(layers: Sequence[Layer]) -> LayerTable:
    """The layers as the kernel reads them; valid while `layers` live."""
    return (NativeLayer * len(layers))(
        *(
            NativeLayer(
                layer.attn_norm.data_ptr(),
                layer.ffn_norm.data_ptr(),
                None if layer.key_scale is None else layer.key_scale.data_ptr(),
                (NativeWeight * 3)(*map(_weight, layer.qkv, layer.qkv_bias)),
                _weight(layer.attn_out),
                (NativeWeight * 2)(*map(_weight, layer.gate_up)),
                _weight(layer.down),
            )
            for layer in layers
        )
    )


def decoder_layers(
    library: ctypes.CDLL,
    table: LayerTable,
    sizes: LayerSizes,
    x: Tensor,
    rows: Rows,
    k_pools: Sequence[Tensor],
    v_pools: Sequence[Tensor],
) -> Tensor:
    """Shapes as in `DecoderLayers`, checked; x is not written to. Raises KernelInputError."""
    count, wanted = len(x), rows.wanted
    x = x.clone(memory_format=torch.contiguous_format)
    out = x if wanted is None else torch.empty((len(wanted), sizes.hidden), dtype=torch.float32)
    block_size, num_blocks = k_pools[0].shape[2], blocks_in(k_pools[0], rows.narrow)
    # Kept in names until the call returns: the kernel reads them by address.
    cos, sin, slots = rows.cos.contiguous(), rows.sin.contiguous(), rows.slots.contiguous()
    tables, seqs = rows.tables.contiguous(), rows.seq_of_row.contiguous()
    contexts = rows.context_of_row.contiguous()
    picked = None if wanted is None else wanted.contiguous()
    coded = None if rows.coded is None else rows.coded.contiguous()
    pools = [(_VOID * len(part))(*(p.data_ptr() for p in part)) for part in (k_pools, v_pools)]
    attention = Attention(
        count, sizes.heads, sizes.kv_heads, sizes.head_dim, block_size, num_blocks,
        tables.shape[0], tables.shape[1], None, None, None, tables.data_ptr(),
        seqs.data_ptr(), contexts.data_ptr(), None,
        sizes.head_dim**-0.5, STORED[k_pools[0].dtype], threads(),
        *types_of(k_pools[0], rows.narrow),
    )  # fmt: skip
    call = Call(
        len(table), sizes.hidden, sizes.ffn, ctypes.addressof(table),
        ctypes.addressof(pools[0]), ctypes.addressof(pools[1]), x.data_ptr(),
        cos.data_ptr(), sin.data_ptr(), slots.data_ptr(),
        None if picked is None else picked.data_ptr(), 0 if picked is None else len(picked),
        out.data_ptr(), attention, sizes.rms_eps,
        None if rows.queries is None else rows.queries.data_ptr(),
        None if coded is None else coded.data_ptr(),
    )  # fmt: skip
    status = library.hs_decoder_layers(ctypes.addressof(call))
    if status == -2:
        raise KernelMemoryError("the activations of the decoder's layers")
    if status >= 0:
        raise KernelInputError(
            f"row {status} has an invalid sequence, context, block or slot: slot "
            f"{int(slots[status])}, sequence {int(seqs[status])} of {tables.shape[0]}, context "
            f"{int(contexts[status])}, {num_blocks} blocks of {block_size}"
        )
    return out
