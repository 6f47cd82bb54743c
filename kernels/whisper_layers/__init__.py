"""All layers of a Whisper encoder or decoder in one call, for a batch of sequences.

A sequence is one sound's positions or one text's tokens. Its new rows attend to themselves, to
earlier rows (by their cached keys and values), and in a decoder to the encoded sound. Weights are
packed. A row's result depends on its own sequence only.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.native import library, require
from headstart.kernels.qlinear import QWeight
from headstart.kernels.whisper_layers import native, reference

__all__ = [
    "HEAD_WIDTH_MOST",
    "HEAD_WIDTH_STEP",
    "Cross",
    "Layer",
    "Linear",
    "Sequence",
    "WhisperLayers",
]

# A head's width must be a multiple of the first, and at most the second.
HEAD_WIDTH_STEP = 8
HEAD_WIDTH_MOST = 128


@dataclass(frozen=True, eq=False)
class Linear:
    """A packed matrix and its bias fp32 [rows] or None."""

    weight: QWeight
    bias: Tensor | None


@dataclass(frozen=True, eq=False)
class Cross:
    """Cross-attention: norm weight and bias fp32 [D], query and output projection."""

    norm: tuple[Tensor, Tensor]
    q: Linear
    out: Linear


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer; `qkv` [3 D, D], `up` [ffn, D], `down` [D, ffn]; `cross` in decoders only."""

    self_norm: tuple[Tensor, Tensor]
    qkv: Linear
    out: Linear
    mlp_norm: tuple[Tensor, Tensor]
    up: Linear
    down: Linear
    cross: Cross | None = None


@dataclass(frozen=True, eq=False)
class Sequence:
    """One sequence's part of a batch.

    `rows`: its rows in x. `k`, `v` fp32 [layers, heads, capacity, d], last axis dense: the first
    `before` belong to earlier rows; those of the first `keep` new rows are written behind them.
    `far_k`, `far_v` [layers, heads, T, d]: attended to as well, in an encoder. `heard_k`, `heard_v`
    [layers, heads, T, d]: of the encoded sound, in decoders; `beyond_k`, `beyond_v`: of what
    follows on it.
    """

    rows: int
    k: Tensor
    v: Tensor
    before: int = 0
    keep: int = 0
    heard_k: Tensor | None = None
    heard_v: Tensor | None = None
    far_k: Tensor | None = None
    far_v: Tensor | None = None
    beyond_k: Tensor | None = None
    beyond_v: Tensor | None = None

    @property
    def heard(self) -> int:
        """Positions of the sound, with those that follow on it."""
        return sum(0 if k is None else k.shape[2] for k in (self.heard_k, self.beyond_k))


class WhisperLayers:
    """Layers bound to their weights. `causal`: a row attends to no later row of its sequence."""

    def __init__(self, layers: Many[Layer], heads: int, *, causal: bool) -> None:
        """Raises KernelInputError for sizes that the kernel does not support."""
        self.layers, self.heads, self.causal = tuple(layers), heads, causal
        self.width, self.ffn = self.layers[0].out.weight.rows, self.layers[0].up.weight.rows
        head_width, rest = divmod(self.width, heads)
        uneven = rest or head_width % HEAD_WIDTH_STEP or self.ffn % HEAD_WIDTH_STEP
        if uneven or head_width > HEAD_WIDTH_MOST:
            raise KernelInputError(
                f"width {self.width}, {heads} heads, ffn {self.ffn}: expected heads of a multiple "
                f"of {HEAD_WIDTH_STEP}, at most {HEAD_WIDTH_MOST} wide, and such an ffn"
            )
        for index, layer in enumerate(self.layers):
            self._check_layer(layer, f"layer {index}")
        self._table = native.layer_table(self.layers)

    def __call__(
        self,
        x: Tensor,
        sequences: Many[Sequence],
        watched: Many[tuple[int, int]] = (),
        *,
        only: int | None = None,
        backend: str | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """x fp32 [rows of all sequences, D] -> the same shape, without a final norm; and for each
        sequence the cross-attention [watched, rows, T] of the `watched` (layer, head) pairs, which
        must be distinct. `only`: run that one layer; one after the other gives the bits of all.

        x is not changed. Raises KernelInputError; then nothing was written.
        """
        require(x, "x", (sum(s.rows for s in sequences), self.width), torch.float32)
        for i, sequence in enumerate(sequences):
            self._check_sequence(sequence, f"sequence {i}")
        self._check_watched(watched)
        lib = library("whisper_layers", native.declare, backend)
        first, end = (0, len(self.layers)) if only is None else (only, only + 1)
        if lib is None or not len(x):
            return reference.whisper_layers(self, x, sequences, watched, (first, end), backend)
        return native.whisper_layers(lib, self, self._table, x, sequences, watched, (first, end))

    def _check_layer(self, layer: Layer, name: str) -> None:
        width, ffn = self.width, self.ffn
        if (layer.cross is None) != (self.layers[0].cross is None):
            raise KernelInputError(f"{name}: expected attention to the sound in all layers or none")
        linears = [(layer.qkv, 3 * width, width), (layer.out, width, width)]
        linears += [(layer.up, ffn, width), (layer.down, width, ffn)]
        norms = [*layer.self_norm, *layer.mlp_norm]
        if layer.cross is not None:
            linears += [(layer.cross.q, width, width), (layer.cross.out, width, width)]
            norms += layer.cross.norm
        for linear, rows, cols in linears:
            if (linear.weight.rows, linear.weight.cols) != (rows, cols):
                got = f"[{linear.weight.rows}, {linear.weight.cols}]"
                raise KernelInputError(f"{name}: expected a weight [{rows}, {cols}], got {got}")
            if linear.bias is not None:
                _require_dense(linear.bias, f"{name} bias", (rows,))
        for norm in norms:
            _require_dense(norm, f"{name} norm", (width,))

    def _check_watched(self, watched: Many[tuple[int, int]]) -> None:
        good = len(set(watched)) == len(watched) and all(
            0 <= layer < len(self.layers) and 0 <= head < self.heads for layer, head in watched
        )
        if not good:
            raise KernelInputError(
                f"watched: expected different (layer, head) below ({len(self.layers)}, "
                f"{self.heads}), got {list(watched)}"
            )

    def _check_sequence(self, s: Sequence, name: str) -> None:
        shape = (len(self.layers), self.heads, None, self.width // self.heads)
        pairs = [("k", s.k), ("v", s.v)]
        if self.layers[0].cross is not None:
            if s.heard_k is None or s.heard_v is None or s.heard_k.shape != s.heard_v.shape:
                raise KernelInputError(f"{name}: expected heard_k and heard_v of one shape")
            pairs += [("heard_k", s.heard_k), ("heard_v", s.heard_v)]
        elif s.heard_k is not None or s.beyond_k is not None:
            raise KernelInputError(f"{name}: expected no sound, for no layer attends to one")
        for part, k, v in (("far", s.far_k, s.far_v), ("beyond", s.beyond_k, s.beyond_v)):
            if k is not None or v is not None:
                if k is None or v is None or k.shape != v.shape:
                    raise KernelInputError(f"{name}: expected {part}_k and {part}_v of one shape")
                pairs += [(f"{part}_k", k), (f"{part}_v", v)]
        for part, tensor in pairs:
            require(tensor, f"{name} {part}", shape, torch.float32)
            if tensor.numel() and tensor.stride(3) != 1:
                raise KernelInputError(f"{name} {part}: expected a dense last axis")
        room = min(s.k.shape[2], s.v.shape[2])
        if not 0 <= s.keep <= s.rows or s.before < 0 or s.before + s.keep > room:
            raise KernelInputError(
                f"{name}: {s.before} rows before and {s.keep} of {s.rows} to keep, but capacity "
                f"for {room}"
            )


def _require_dense(tensor: Tensor, name: str, shape: tuple[int, ...]) -> None:
    require(tensor, name, shape, torch.float32)
    if not tensor.is_contiguous():
        raise KernelInputError(f"{name}: expected a contiguous tensor")
