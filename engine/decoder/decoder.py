"""One forward pass over a ragged batch: rows of several streams, one behind the other.

Nothing here adds across rows: every row's result depends on its own stream only. The native
kernels keep that bitwise, whatever else is in the batch, and so does everything between them
(element-wise sums, gathers). Hence tokens prefilled in any cut give the same logits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache import KvCache
from engine.decoder.spec import DecoderSpec
from engine.decoder.weights import DecoderWeights, LayerWeights
from kernels.paged_attention import append, paged_attention
from kernels.rms_norm import rms_norm
from kernels.rope import rope
from kernels.silu_mul import silu_mul


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one step and where their K/V are."""

    tokens: Tensor  # int64 [rows]; 0 in the rows of soft tokens
    soft_rows: Tensor  # int64 [n]: rows whose embedding comes from soft_vectors
    soft_vectors: Tensor  # fp32 [n, hidden]
    positions: Tensor  # int64 [rows]
    slots: Tensor  # int64 [rows]: where each row's K/V go
    tables: Tensor  # int32 [streams, max_blocks]
    seq_of_row: Tensor  # int32 [rows]: the row's line in tables
    context_of_row: Tensor  # int32 [rows]: keys the row sees, its own included
    wanted: Tensor  # int64 [n]: rows that go through the output head


class Decoder:
    """Llama/Qwen2 on `weights`; positions up to `max_positions` (exclusive)."""

    def __init__(
        self, spec: DecoderSpec, weights: DecoderWeights, max_positions: int, backend: str
    ) -> None:
        self.spec = spec
        self.weights = weights
        self.backend = backend
        self._scale = spec.head_dim**-0.5
        self._cos, self._sin = rope_tables(spec, max_positions)

    def forward(self, batch: Batch, cache: KvCache) -> Tensor:
        """Writes K/V of all rows into `cache`; logits fp32 [len(wanted), vocab_size]."""
        hidden = self.weights.embedding(batch.tokens)  # [rows, hidden], ours to write into
        if len(batch.soft_rows):
            hidden[batch.soft_rows] = batch.soft_vectors
        cos, sin = self._cos[batch.positions], self._sin[batch.positions]
        last = len(self.weights.layers) - 1
        for index, layer in enumerate(self.weights.layers):
            q = self._append_kv(layer, index, hidden, cos, sin, batch, cache)
            seq, context = batch.seq_of_row, batch.context_of_row
            if index == last and len(batch.wanted) < len(batch.tokens):
                # Behind the last K/V, rows that nobody asks about need no more work.
                hidden, q = hidden[batch.wanted], q[batch.wanted]
                seq, context = seq[batch.wanted], context[batch.wanted]
                if not len(batch.wanted):
                    return hidden.new_empty((0, self.spec.vocab_size))
            heads = paged_attention(
                q,
                cache.k_pools[index],
                cache.v_pools[index],
                batch.tables,
                seq,
                context,
                self._scale,
                backend=self.backend,
            )
            hidden += layer.attn_out(heads.flatten(1))[0]
            hidden += self._mlp(layer, hidden)
        normed = rms_norm(hidden, self.weights.output_norm, self.spec.rms_eps, backend=self.backend)
        return self.weights.output(normed)[0]

    def _append_kv(
        self,
        layer: LayerWeights,
        index: int,
        hidden: Tensor,
        cos: Tensor,
        sin: Tensor,
        batch: Batch,
        cache: KvCache,
    ) -> Tensor:
        """Stores the rows' K and V; returns the rotated queries [rows, heads, head_dim]."""
        spec, backend = self.spec, self.backend
        normed = rms_norm(hidden, layer.attn_norm, spec.rms_eps, backend=backend)
        q, k, v = layer.qkv(normed)
        q = rope(q.view(-1, spec.heads, spec.head_dim), cos, sin, backend=backend)
        k = rope(k.view(-1, spec.kv_heads, spec.head_dim), cos, sin, backend=backend)
        v = v.view(-1, spec.kv_heads, spec.head_dim)
        append(cache.k_pools[index], cache.v_pools[index], k, v, batch.slots, backend=backend)
        return q

    def _mlp(self, layer: LayerWeights, hidden: Tensor) -> Tensor:
        normed = rms_norm(hidden, layer.ffn_norm, self.spec.rms_eps, backend=self.backend)
        gate, up = layer.gate_up(normed)
        return layer.down(silu_mul(gate, up, backend=self.backend))[0]


def rope_tables(spec: DecoderSpec, max_positions: int) -> tuple[Tensor, Tensor]:
    """cos and sin of every angle, fp32 [max_positions, head_dim / 2], computed in fp64."""
    exponents = torch.arange(0, spec.head_dim, 2, dtype=torch.float64) / spec.head_dim
    angles = torch.outer(
        torch.arange(max_positions, dtype=torch.float64), spec.rope_base**-exponents
    )
    return angles.cos().float(), angles.sin().float()
