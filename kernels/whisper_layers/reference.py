"""The layers operation by operation, in plain torch except for the packed matrices."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.kernels.qlinear import qlinear

if TYPE_CHECKING:
    from headstart.kernels.whisper_layers import Linear, Sequence, WhisperLayers


def whisper_layers(
    model: WhisperLayers,
    x: Tensor,
    sequences: Many[Sequence],
    watched: Many[tuple[int, int]],
    layers: tuple[int, int],
    backend: str | None,
) -> tuple[Tensor, list[Tensor]]:
    """Shapes as in `WhisperLayers`; the `layers` from the first to before the second."""
    counts = [sequence.rows for sequence in sequences]
    seen = [torch.zeros(len(watched), s.rows, s.heard) for s in sequences]

    def linear(rows: Tensor, by: Linear) -> Tensor:
        return qlinear(rows, by.weight, by.bias, backend=backend)

    for index in range(*layers):
        layer = model.layers[index]
        qkv = torch.split(linear(_norm(x, layer.self_norm), layer.qkv), counts)
        mixed = [_self(model, s, part, index) for s, part in zip(sequences, qkv, strict=True)]
        x = x + linear(torch.cat(mixed), layer.out)
        if layer.cross is not None:
            q = torch.split(linear(_norm(x, layer.cross.norm), layer.cross.q), counts)
            mixed = [
                _cross(model, s, part, index, watched, out)
                for s, part, out in zip(sequences, q, seen, strict=True)
            ]
            x = x + linear(torch.cat(mixed), layer.cross.out)
        x = x + linear(F.gelu(linear(_norm(x, layer.mlp_norm), layer.up)), layer.down)
    return x, seen


def _norm(x: Tensor, weights: tuple[Tensor, Tensor]) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], *weights)


def _heads(x: Tensor, heads: int) -> Tensor:
    """[n, D] to [heads, n, d]."""
    return x.view(len(x), heads, -1).transpose(0, 1)


def _joined(layer: int, *parts: Tensor | None) -> Tensor:
    """One after the other [heads, rows, d]: those that are there, of one layer or of all."""
    found = [part for part in parts if part is not None]
    return torch.cat([part if part.dim() == 3 else part[layer] for part in found], dim=1)


def _self(model: WhisperLayers, s: Sequence, qkv: Tensor, layer: int) -> Tensor:
    q, k, v = (_heads(part, model.heads) for part in qkv.chunk(3, dim=-1))
    s.k[layer, :, s.before : s.before + s.keep] = k[:, : s.keep]
    s.v[layer, :, s.before : s.before + s.keep] = v[:, : s.keep]
    keys = _joined(layer, s.far_k, s.k[:, :, : s.before], k)
    values = _joined(layer, s.far_v, s.v[:, :, : s.before], v)
    mask = None
    if model.causal:
        mask = torch.ones(s.rows, keys.shape[1], dtype=torch.bool).tril(keys.shape[1] - s.rows)
    mixed = F.scaled_dot_product_attention(q[None], keys[None], values[None], attn_mask=mask)
    return mixed[0].transpose(0, 1).reshape(s.rows, -1)


def _cross(
    model: WhisperLayers,
    s: Sequence,
    rows: Tensor,
    layer: int,
    watched: Many[tuple[int, int]],
    seen: Tensor,
) -> Tensor:
    q = _heads(rows, model.heads)
    keys, values = (
        _joined(layer, *parts) for parts in ((s.heard_k, s.beyond_k), (s.heard_v, s.beyond_v))
    )
    weights = (q @ keys.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(dim=-1)
    for i, (at, head) in enumerate(watched):
        if at == layer:
            seen[i] = weights[head]
    mixed: Tensor = weights @ values
    return mixed.transpose(0, 1).reshape(s.rows, -1)
