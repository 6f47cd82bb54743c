"""All layers of a Llama or Qwen2 decoder in one call.

Equal to calling the other operations one by one (reference.py does), bit for bit, without the
fifteen calls through Python and torch per layer, which for a small model take as long as the
weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.kernels.decoder_layers import native, reference
from headstart.kernels.errors import KernelInputError
from headstart.kernels.native import library, require
from headstart.kernels.paged_attention import require_narrow
from headstart.kernels.paged_attention.native import STORED
from headstart.kernels.paged_attention.storage import Narrow, row_width
from headstart.kernels.qlinear import QWeight

__all__ = ["DecoderLayers", "Layer", "LayerSizes", "Rows"]


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer's weights; norms fp32 [hidden], biases fp32 [rows of their weight] or None.

    `key_scale` fp32 [kv_heads, head_dim]: keys are divided by it before they are stored, and
    queries multiplied. Powers of two change no product. Both halves of a head must have the same
    scales, so that scaling and rotation commute.
    """

    attn_norm: Tensor
    qkv: tuple[QWeight, QWeight, QWeight]
    qkv_bias: tuple[Tensor | None, Tensor | None, Tensor | None]
    attn_out: QWeight
    ffn_norm: Tensor
    gate_up: tuple[QWeight, QWeight]
    down: QWeight
    key_scale: Tensor | None = None


@dataclass(frozen=True)
class LayerSizes:
    """Sizes that all layers share."""

    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_eps: float


@dataclass(frozen=True, eq=False)
class Rows:
    """Positions and K/V locations of one step's rows; names and shapes as in `paged_attention` and
    `rope`.

    `wanted` int64 [n]: the rows that the last layer returns, in this order, possibly repeated;
    None: all. `queries` fp32 [layers, rows that come out, heads, head_dim]: written, with the
    rotated and scaled queries of those rows. `narrow`, `coded`: the pools' second type of blocks,
    and the rows that are rounded to it, as in `append`.
    """

    cos: Tensor
    sin: Tensor
    slots: Tensor
    tables: Tensor
    seq_of_row: Tensor
    context_of_row: Tensor
    wanted: Tensor | None = None
    queries: Tensor | None = None
    narrow: Narrow | None = None
    coded: Tensor | None = None


class DecoderLayers:
    """Layers bound to their weights; called once a step."""

    def __init__(self, layers: Sequence[Layer], sizes: LayerSizes) -> None:
        """Raises KernelInputError for a weight whose shape differs from `sizes`."""
        self.layers, self.sizes = tuple(layers), sizes
        for index, layer in enumerate(self.layers):
            _check_layer(layer, sizes, f"layer {index}")
        self._table = native.layer_table(self.layers)
        self._checked: tuple[Sequence[Tensor], Sequence[Tensor]] = ((), ())

    def __call__(
        self,
        x: Tensor,
        rows: Rows,
        k_pools: Sequence[Tensor],
        v_pools: Sequence[Tensor],
        *,
        backend: str | None = None,
    ) -> Tensor:
        """x fp32 [rows, hidden] -> fp32 [rows, hidden], or [wanted, hidden]; x is not kept.

        Stores the rows' K and V in the pools (one pair a layer) at their slots. Raises
        KernelInputError; then nothing was stored.
        """
        self._check_pools(k_pools, v_pools)
        require_narrow(k_pools[0], rows.narrow)
        self._check_rows(x, rows)
        lib = library("decoder_layers", native.declare, backend)
        if lib is None or not len(x):
            return reference.decoder_layers(
                self.layers, self.sizes, x, rows, k_pools, v_pools, backend
            )
        return native.decoder_layers(lib, self._table, self.sizes, x, rows, k_pools, v_pools)

    def _check_pools(self, k_pools: Sequence[Tensor], v_pools: Sequence[Tensor]) -> None:
        """Check pools on their first use only, since they do not change shape."""
        if self._checked[0] is k_pools and self._checked[1] is v_pools:
            return
        if len(k_pools) != len(self.layers) or len(v_pools) != len(self.layers):
            raise KernelInputError(
                f"expected {len(self.layers)} pairs of pools, one a layer, got "
                f"{len(k_pools)} and {len(v_pools)}"
            )
        width = row_width(self.sizes.head_dim, k_pools[0].dtype)
        require(k_pools[0], "k_pools[0]", (None, self.sizes.kv_heads, None, width), *STORED)
        for name, pools in (("k_pools", k_pools), ("v_pools", v_pools)):
            for i, pool in enumerate(pools):
                require(pool, f"{name}[{i}]", tuple(k_pools[0].shape), k_pools[0].dtype)
                if not pool.is_contiguous():
                    raise KernelInputError(f"{name}[{i}]: expected a contiguous tensor")
        self._checked = (k_pools, v_pools)

    def _check_rows(self, x: Tensor, rows: Rows) -> None:
        count = len(x)
        require(x, "x", (count, self.sizes.hidden), torch.float32)
        for name in ("cos", "sin"):
            require(getattr(rows, name), name, (count, self.sizes.head_dim // 2), torch.float32)
        require(rows.slots, "slots", (count,), torch.int64)
        require(rows.tables, "tables", (None, None), torch.int32)
        require(rows.seq_of_row, "seq_of_row", (count,), torch.int32)
        require(rows.context_of_row, "context_of_row", (count,), torch.int32)
        if rows.coded is not None:
            require(rows.coded, "coded", (count,), torch.bool)
        if rows.wanted is not None:
            require(rows.wanted, "wanted", (None,), torch.int64)
            if (
                len(rows.wanted)
                and not 0 <= int(rows.wanted.min()) <= int(rows.wanted.max()) < count
            ):
                raise KernelInputError(f"wanted: expected rows 0 .. {count - 1}")
        if rows.queries is not None:
            out = count if rows.wanted is None else len(rows.wanted)
            shape = (len(self.layers), out, self.sizes.heads, self.sizes.head_dim)
            require(rows.queries, "queries", shape, torch.float32)
            if not rows.queries.is_contiguous():
                raise KernelInputError("queries: expected a contiguous tensor")


def _check_layer(layer: Layer, sizes: LayerSizes, name: str) -> None:
    q_width, kv_width = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    if sizes.heads % sizes.kv_heads or sizes.head_dim % 2:
        raise KernelInputError(f"{sizes}: heads share KV heads evenly, and a head has two halves")
    wanted = (
        *zip(layer.qkv, (q_width, kv_width, kv_width), (sizes.hidden,) * 3, strict=True),
        (layer.attn_out, sizes.hidden, q_width),
        *((weight, sizes.ffn, sizes.hidden) for weight in layer.gate_up),
        (layer.down, sizes.hidden, sizes.ffn),
    )
    for weight, height, width in wanted:
        if (weight.rows, weight.cols) != (height, width):
            got = f"[{weight.rows}, {weight.cols}]"
            raise KernelInputError(f"{name}: expected a weight [{height}, {width}], got {got}")
    for norm in (layer.attn_norm, layer.ffn_norm):
        require(norm, f"{name} norm", (sizes.hidden,), torch.float32)
    for weight, bias in zip(layer.qkv, layer.qkv_bias, strict=True):
        if bias is not None:
            require(bias, f"{name} bias", (weight.rows,), torch.float32)
    if layer.key_scale is not None:
        require(layer.key_scale, f"{name} scale", (sizes.kv_heads, sizes.head_dim), torch.float32)
    tensors = (layer.attn_norm, layer.ffn_norm, layer.key_scale, *layer.qkv_bias)
    if not all(tensor is None or tensor.is_contiguous() for tensor in tensors):
        raise KernelInputError(f"{name}: expected contiguous norms, biases and scales")
