"""A decoder's parts in plain fp32 torch: exact, large, slow. The reference for the packed ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import linear

from headstart.kernels.decoder_layers import Layer, LayerSizes, Rows
from headstart.kernels.paged_attention import append, paged_attention
from headstart.kernels.qlinear import dequantize
from headstart.kernels.rms_norm import rms_norm
from headstart.kernels.rope import rope
from headstart.kernels.silu_mul import silu_mul


class DenseEmbedding:
    """Token embeddings, fp32 [vocab_size, hidden]."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, tokens: Tensor) -> Tensor:
        """int64 [rows] -> fp32 [rows, hidden]."""
        return self.weight[tokens]


class DenseHead:
    """The output projection, fp32 [vocab_size, hidden]."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        """fp32 [rows, hidden] -> fp32 [rows, vocab_size]."""
        return linear(x, self.weight)


@dataclass(frozen=True, slots=True, eq=False)
class DenseLayer:
    """One layer's weights, fp32."""

    attn_norm: Tensor
    qkv: Tensor  # [q_width + 2 kv_width, hidden]
    qkv_bias: Tensor  # [q_width + 2 kv_width]
    attn_out: Tensor
    ffn_norm: Tensor
    gate_up: Tensor  # [2 ffn, hidden]
    down: Tensor
    key_scale: Tensor | None  # [kv_heads, head_dim]

    @classmethod
    def of(cls, layer: Layer) -> Self:
        """Dequantise a packed layer."""
        parts = zip(layer.qkv, layer.qkv_bias, strict=True)
        biases = [torch.zeros(weight.rows) if bias is None else bias for weight, bias in parts]
        return cls(
            attn_norm=layer.attn_norm,
            qkv=torch.cat([dequantize(weight) for weight in layer.qkv]),
            qkv_bias=torch.cat(biases),
            attn_out=dequantize(layer.attn_out),
            ffn_norm=layer.ffn_norm,
            gate_up=torch.cat([dequantize(weight) for weight in layer.gate_up]),
            down=dequantize(layer.down),
            key_scale=layer.key_scale,
        )


class DenseStack:
    """All layers, operation by operation, on the kernels' references."""

    def __init__(self, layers: Sequence[DenseLayer], sizes: LayerSizes) -> None:
        self.layers, self.sizes = tuple(layers), sizes

    def __call__(
        self, x: Tensor, rows: Rows, k_pools: Sequence[Tensor], v_pools: Sequence[Tensor]
    ) -> Tensor:
        """fp32 [rows, hidden] -> fp32 [rows, hidden], or [wanted, hidden]. Stores K and V."""
        eps, backend = self.sizes.rms_eps, "reference"
        pools = zip(k_pools, v_pools, strict=True)
        for i, (layer, (k_pool, v_pool)) in enumerate(zip(self.layers, pools, strict=True)):
            normed = rms_norm(x, layer.attn_norm, eps, backend=backend)
            q, k, v = self._heads(linear(normed, layer.qkv, layer.qkv_bias), rows)
            if layer.key_scale is not None:
                group = self.sizes.heads // self.sizes.kv_heads
                q = q * layer.key_scale.repeat_interleave(group, dim=0)
                k = k / layer.key_scale
            append(
                k_pool,
                v_pool,
                k,
                v,
                rows.slots,
                narrow=rows.narrow,
                coded=rows.coded,
                backend=backend,
            )
            if rows.queries is not None:
                rows.queries[i] = q if rows.wanted is None else q[rows.wanted]
            heads = paged_attention(
                q,
                k_pool,
                v_pool,
                rows.tables,
                rows.seq_of_row,
                rows.context_of_row,
                self.sizes.head_dim**-0.5,
                narrow=rows.narrow,
                backend=backend,
            )
            x = x + linear(heads.flatten(1), layer.attn_out)
            normed = rms_norm(x, layer.ffn_norm, eps, backend=backend)
            gate, up = linear(normed, layer.gate_up).chunk(2, dim=-1)
            x = x + linear(silu_mul(gate, up, backend=backend), layer.down)
        return x if rows.wanted is None else x[rows.wanted]

    def _heads(self, qkv: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """[rows, q_width + 2 kv_width] -> rotated q, rotated k and v, each [rows, heads, d]."""
        sizes = self.sizes
        counts = (sizes.heads, sizes.kv_heads, sizes.kv_heads)
        parts = torch.split(qkv, [count * sizes.head_dim for count in counts], dim=-1)
        q, k, v = (p.view(len(p), n, -1) for p, n in zip(parts, counts, strict=True))
        cos, sin = rows.cos, rows.sin
        return rope(q, cos, sin, backend="reference"), rope(k, cos, sin, backend="reference"), v
