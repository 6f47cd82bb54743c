"""The layers, operation by operation: what kernel.c does in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from headstart.kernels.paged_attention import append, paged_attention
from headstart.kernels.qlinear import qlinear, qlinear_many
from headstart.kernels.rms_norm import rms_norm
from headstart.kernels.rope import rope
from headstart.kernels.silu_mul import silu_mul

if TYPE_CHECKING:
    from headstart.kernels.decoder_layers import Layer, LayerSizes, Rows


def decoder_layers(
    layers: Sequence[Layer],
    sizes: LayerSizes,
    x: Tensor,
    rows: Rows,
    k_pools: Sequence[Tensor],
    v_pools: Sequence[Tensor],
    backend: str | None,
) -> Tensor:
    """Shapes as in `DecoderLayers`; every operation runs on `backend`."""
    scale = sizes.head_dim**-0.5
    seqs, contexts = rows.seq_of_row, rows.context_of_row
    for i, (layer, k_pool, v_pool) in enumerate(zip(layers, k_pools, v_pools, strict=True)):
        normed = rms_norm(x, layer.attn_norm, sizes.rms_eps, backend=backend)
        q, k, v = qlinear_many(normed, layer.qkv, layer.qkv_bias, backend=backend)
        q = rope(q.view(-1, sizes.heads, sizes.head_dim), rows.cos, rows.sin, backend=backend)
        k = rope(k.view(-1, sizes.kv_heads, sizes.head_dim), rows.cos, rows.sin, backend=backend)
        v = v.view(-1, sizes.kv_heads, sizes.head_dim)
        if layer.key_scale is not None:
            q = q * layer.key_scale.repeat_interleave(sizes.heads // sizes.kv_heads, dim=0)
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
        if i == len(layers) - 1 and rows.wanted is not None:
            x, q = x[rows.wanted], q[rows.wanted]
            seqs, contexts = seqs[rows.wanted], contexts[rows.wanted]
        heads = paged_attention(
            q,
            k_pool,
            v_pool,
            rows.tables,
            seqs,
            contexts,
            scale,
            narrow=rows.narrow,
            backend=backend,
        )
        x = x + qlinear(heads.flatten(1), layer.attn_out, backend=backend)
        normed = rms_norm(x, layer.ffn_norm, sizes.rms_eps, backend=backend)
        gate, up = qlinear_many(normed, layer.gate_up, backend=backend)
        x = x + qlinear(silu_mul(gate, up, backend=backend), layer.down, backend=backend)
    return x
