"""One forward pass over a ragged batch: rows of several streams, one stream after the other.

No operation adds across rows, so each row's result depends on its own stream only. The native
kernels guarantee this bitwise, whatever else is in the batch, and so does everything between them
(element-wise sums, gathers). Hence tokens prefilled in any split give the same logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.decoder.rotary import PagedRotary, Rotary
from headstart.engine.decoder.weights import DecoderWeights
from headstart.engine.kvcache.storage import KvCache
from headstart.kernels.decoder_layers import Rows
from headstart.kernels.rms_norm import rms_norm


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one step and the locations of their K/V."""

    tokens: Tensor  # int64 [rows]; 0 in the rows of soft tokens
    soft_rows: Tensor  # int64 [n]: rows whose embedding comes from soft_vectors
    soft_vectors: Tensor  # fp32 [n, hidden]
    positions: Tensor  # int64 [rows]; [3, rows] for a decoder that rotates by three axes
    slots: Tensor  # int64 [rows]: where each row's K/V are stored
    tables: Tensor  # int32 [streams, max_blocks]
    seq_of_row: Tensor  # int32 [rows]: the row's line in tables
    context_of_row: Tensor  # int32 [rows]: keys the row attends to, its own included
    wanted: Tensor  # int64 [n]: rows that go through the output head
    queries: Tensor | None = None  # [layers, n, heads, head_dim]: those of the same rows, written
    coded: Tensor | None = None  # bool [rows]: K/V are rounded to the cache's narrow type


class Forward(Protocol):
    """A decoder, as the runner needs it."""

    spec: DecoderSpec
    rotary: Rotary  # its `axes` say which positions a batch has

    def forward(self, batch: Batch, cache: KvCache) -> Tensor:
        """Store K/V of all rows in `cache`; returns logits [len(wanted), vocab_size], where the
        decoder is. On a GPU they may not be computed yet, and the next call overwrites them."""
        ...


class TextDecoder(Forward, Protocol):
    """A decoder that also embeds text."""

    def embed(self, tokens: Tensor) -> Tensor:
        """int64 [rows] -> [rows, hidden]."""
        ...


class Decoder:
    """A Llama/Qwen2 decoder on `weights`. `rotary` None: one axis, unbounded positions."""

    def __init__(
        self,
        spec: DecoderSpec,
        weights: DecoderWeights,
        backend: str,
        rotary: Rotary | None = None,
    ) -> None:
        self.spec = spec
        self.weights = weights
        self.backend = backend
        self.rotary: Rotary = PagedRotary(spec) if rotary is None else rotary

    def embed(self, tokens: Tensor) -> Tensor:
        """int64 [rows] -> fp32 [rows, hidden]."""
        return self.weights.embedding(tokens)

    def forward(self, batch: Batch, cache: KvCache) -> Tensor:
        """Store K/V of all rows in `cache`; returns logits fp32 [len(wanted), vocab_size]."""
        hidden = self.weights.embedding(batch.tokens)  # [rows, hidden], ours to write into
        if len(batch.soft_rows):
            hidden[batch.soft_rows] = batch.soft_vectors
        cos, sin = self.rotary(batch.positions)
        rows = Rows(
            cos=cos,
            sin=sin,
            slots=batch.slots,
            tables=batch.tables,
            seq_of_row=batch.seq_of_row,
            context_of_row=batch.context_of_row,
            wanted=None if is_all(batch) else batch.wanted,
            queries=batch.queries,
            narrow=cache.narrow,
            coded=batch.coded,
        )
        hidden = self.weights.layers(hidden, rows, cache.k_pools, cache.v_pools)
        if not len(hidden):
            return hidden.new_empty((0, self.spec.vocab_size))
        normed = rms_norm(hidden, self.weights.output_norm, self.spec.rms_eps, backend=self.backend)
        return self.weights.output(normed)


def is_all(batch: Batch) -> bool:
    """Whether all rows are wanted; they are ascending."""
    return len(batch.wanted) == len(batch.tokens)
