"""A Llama/Qwen2 decoder on weights of any float dtype, over the paged KV cache, in plain torch.

Takes the same batches, cache and runner as the packed decoder. It is slower, but exact in fp64, and
in bf16 it uses a checkpoint's mapped pages directly. Rows of one stream attend together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.decoder.decoder import Batch
from headstart.engine.decoder.key_scale import key_scale
from headstart.engine.decoder.layers import Linear, RmsNorm, compute_dtype, rotate
from headstart.engine.decoder.rotary import Rotary
from headstart.engine.kvcache.storage import KvCache
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.kernels.paged_attention.storage import Narrow, gather, store


@dataclass(frozen=True, slots=True, eq=False)
class TorchLayer:
    """One layer's weights."""

    attn_norm: RmsNorm
    q: Linear
    k: Linear
    v: Linear
    out: Linear
    ffn_norm: RmsNorm
    gate: Linear
    up: Linear
    down: Linear
    key_scale: Tensor  # [kv_heads, head_dim]


@dataclass(frozen=True, slots=True, eq=False)
class TorchWeights:
    """All weights of a decoder."""

    embedding: Tensor  # [vocab_size, hidden]
    layers: tuple[TorchLayer, ...]
    norm: RmsNorm
    head: Linear

    @classmethod
    def load(cls, tensors: Tensors, head: Tensors, spec: DecoderSpec) -> TorchWeights:
        """Load by `transformers`' names; `head` has "lm_head.weight" unless it is tied. Raises
        `BadWeights` naming what is missing or misshapen."""
        embedding = tensors.take("embed_tokens.weight", spec.vocab_size, spec.hidden)
        output = (
            embedding
            if spec.tied_output
            else head.take("lm_head.weight", spec.vocab_size, spec.hidden)
        )
        layers = tuple(_layer(tensors, f"layers.{i}.", spec) for i in range(spec.layers))
        norm = RmsNorm(tensors.take("norm.weight", spec.hidden), spec.rms_eps)
        return cls(embedding, layers, norm, Linear(output))


def _layer(tensors: Tensors, prefix: str, spec: DecoderSpec) -> TorchLayer:
    def linear(name: str, rows: int, cols: int, bias: bool = False) -> Linear:
        weight = tensors.take(f"{prefix}{name}.weight", rows, cols)
        return Linear(weight, tensors.take(f"{prefix}{name}.bias", rows) if bias else None)

    def norm(name: str) -> RmsNorm:
        return RmsNorm(tensors.take(f"{prefix}{name}.weight", spec.hidden), spec.rms_eps)

    attn_norm = norm("input_layernorm")
    k = linear("self_attn.k_proj", spec.kv_width, spec.hidden, spec.qkv_bias)
    return TorchLayer(
        attn_norm=attn_norm,
        q=linear("self_attn.q_proj", spec.q_width, spec.hidden, spec.qkv_bias),
        k=k,
        v=linear("self_attn.v_proj", spec.kv_width, spec.hidden, spec.qkv_bias),
        out=linear("self_attn.o_proj", spec.hidden, spec.q_width),
        ffn_norm=norm("post_attention_layernorm"),
        gate=linear("mlp.gate_proj", spec.ffn, spec.hidden),
        up=linear("mlp.up_proj", spec.ffn, spec.hidden),
        down=linear("mlp.down_proj", spec.hidden, spec.ffn),
        key_scale=key_scale(k.weight, k.bias, attn_norm.weight, spec.kv_heads),
    )


class TorchDecoder:
    """`headstart.engine.decoder.decoder.Forward` on `TorchWeights`."""

    def __init__(self, spec: DecoderSpec, weights: TorchWeights, rotary: Rotary) -> None:
        self.spec, self.weights = spec, weights
        self.rotary = rotary

    def embed(self, tokens: Tensor) -> Tensor:
        """int64 [rows] -> [rows, hidden]."""
        table = self.weights.embedding
        return table[tokens].to(compute_dtype(table.dtype))

    def forward(self, batch: Batch, cache: KvCache) -> Tensor:
        """Store K/V of all rows in `cache`; returns logits [len(wanted), vocab_size]."""
        x = self.embed(batch.tokens)
        if len(batch.soft_rows):
            x[batch.soft_rows] = batch.soft_vectors.to(x.dtype)
        cos, sin = (angle.to(x.dtype) for angle in self.rotary(batch.positions))
        streams = _streams(batch)
        for i, layer in enumerate(self.weights.layers):
            q, k, v = self._heads(layer, x)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            scale = layer.key_scale.to(x.dtype)
            q, k = q * scale.repeat_interleave(q.shape[1] // k.shape[1], dim=0), k / scale
            if batch.queries is not None:
                batch.queries[i] = q[batch.wanted]
            pools = cache.k_pools[i], cache.v_pools[i]
            for pool, heads in zip(pools, (k, v), strict=True):
                store(pool, heads, batch.slots, cache.narrow, batch.coded)
            x = x + layer.out(_attend(q, pools, cache.narrow, streams))
            normed = layer.ffn_norm(x)
            x = x + layer.down(F.silu(layer.gate(normed)) * layer.up(normed))
        return self.weights.head(self.weights.norm(x[batch.wanted]))

    def _heads(self, layer: TorchLayer, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, each [rows, heads, head_dim]."""
        normed, head_dim = layer.attn_norm(x), self.spec.head_dim
        q, k, v = (
            torch.unflatten(p(normed), 1, (-1, head_dim)) for p in (layer.q, layer.k, layer.v)
        )
        return q, k, v


@dataclass(frozen=True, slots=True)
class _Rows:
    """One stream's rows in a batch, its blocks, and the number of keys each row attends to."""

    rows: slice
    blocks: Tensor  # int64
    contexts: Tensor  # int32 [rows]

    @property
    def longest(self) -> int:
        return int(self.contexts[-1])


def _streams(batch: Batch) -> list[_Rows]:
    seqs, counts = torch.unique_consecutive(batch.seq_of_row, return_counts=True)
    out, at = [], 0
    for seq, count in zip(seqs.tolist(), counts.tolist(), strict=True):
        rows = slice(at, at + count)
        out.append(_Rows(rows, batch.tables[seq].long(), batch.context_of_row[rows]))
        at += count
    return out


def _attend(
    q: Tensor, pools: tuple[Tensor, Tensor], narrow: Narrow | None, streams: Sequence[_Rows]
) -> Tensor:
    """[rows, heads, head_dim] -> [rows, heads * head_dim]."""
    out = torch.empty_like(q)
    block_size = pools[0].shape[2]
    for stream in streams:
        length = stream.longest
        blocks = stream.blocks[: -(-length // block_size)]
        k, v = (gather(pool, blocks, length, narrow).to(q.dtype) for pool in pools)
        seen = torch.arange(length) < stream.contexts[:, None]
        heads = F.scaled_dot_product_attention(
            q[stream.rows].transpose(0, 1)[None],
            k[None],
            v[None],
            attn_mask=None if len(seen) == 1 else seen,
            enable_gqa=True,
        )
        out[stream.rows] = heads[0].transpose(0, 1)
    return out.flatten(1)
