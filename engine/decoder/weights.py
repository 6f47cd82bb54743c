"""A decoder's weights: packed as in the file, or dequantised for the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile, GgufTensor
from headstart.engine.checkpoints.packed_file import PackedFile, PackedWriter
from headstart.engine.decoder.adapter import KIND, Adapter
from headstart.engine.decoder.dense import DenseEmbedding, DenseHead, DenseLayer, DenseStack
from headstart.engine.decoder.key_scale import key_scale
from headstart.engine.errors import UnsupportedModel
from headstart.kernels.decoder_layers import DecoderLayers, Layer, LayerSizes, Rows
from headstart.kernels.qlinear import FORMATS, QWeight, dequantize, pack, qlinear
from headstart.kernels.qlinear import rows as gather_rows

Tick = Callable[[int, int], None]  # layers loaded, layers in all


class Embedding(Protocol):
    """The first part of a decoder: a row for each token."""

    def __call__(self, tokens: Tensor) -> Tensor:
        """int64 [rows] -> fp32 [rows, hidden]."""


class Stack(Protocol):
    """All layers of a decoder."""

    def __call__(
        self, x: Tensor, rows: Rows, k_pools: Sequence[Tensor], v_pools: Sequence[Tensor]
    ) -> Tensor:
        """fp32 [rows, hidden] -> fp32 [rows, hidden], or [wanted, hidden]. Stores K and V."""


class Head(Protocol):
    """The last part of a decoder: logits."""

    def __call__(self, x: Tensor) -> Tensor:
        """fp32 [rows, hidden] -> fp32 [rows, vocab_size]."""


class PackedEmbedding:
    """Token embeddings from packed rows."""

    def __init__(self, weight: QWeight, backend: str) -> None:
        self.weight, self.backend = weight, backend

    def __call__(self, tokens: Tensor) -> Tensor:
        return gather_rows(self.weight, tokens, backend=self.backend)


class PackedStack:
    """Layers on packed weights, run by one call of a C kernel (batch-invariant)."""

    def __init__(self, layers: Sequence[Layer], sizes: LayerSizes, backend: str) -> None:
        self.layers, self.backend = DecoderLayers(layers, sizes), backend

    def __call__(
        self, x: Tensor, rows: Rows, k_pools: Sequence[Tensor], v_pools: Sequence[Tensor]
    ) -> Tensor:
        return self.layers(x, rows, k_pools, v_pools, backend=self.backend)


class PackedHead:
    """The output matrix from packed rows."""

    def __init__(self, weight: QWeight, backend: str) -> None:
        self.weight, self.backend = weight, backend

    def __call__(self, x: Tensor) -> Tensor:
        return qlinear(x, self.weight, backend=self.backend)


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All weights of a decoder."""

    embedding: Embedding
    layers: Stack
    output_norm: Tensor  # fp32 [hidden]
    output: Head
    nbytes: int  # of all weights in memory


class WeightLoader:
    """Reads a decoder's tensors from a GGUF file and checks their names and shapes."""

    def __init__(
        self,
        file: GgufFile,
        spec: DecoderSpec,
        backend: str,
        adapter: Adapter | None = None,
        *,
        packed: PackedFile | None = None,
        writer: PackedWriter | None = None,
    ) -> None:
        """`packed`: matrices made earlier of the same file and adapter, in place of making them;
        `writer` gets each matrix that is made."""
        self.file, self.spec, self.backend, self.adapter = file, spec, backend, adapter
        self._packed, self._writer = packed, writer
        self.dense = backend == "reference"
        self.nbytes = 0

    def load(self, tick: Tick) -> DecoderWeights:
        """Load all weights. Raises `BadWeights` naming a tensor that is missing or misshapen."""
        spec = self.spec
        embedding = self._matrix("token_embd.weight", spec.vocab_size, spec.hidden)
        output = (
            embedding
            if spec.tied_output
            else self._matrix("output.weight", spec.vocab_size, spec.hidden)
        )
        layers = []
        for index in range(spec.layers):
            tick(index, spec.layers)
            layers.append(self._layer(f"blk.{index}"))
        tick(spec.layers, spec.layers)
        norm = self._vector("output_norm.weight", spec.hidden)
        sizes = LayerSizes(
            spec.hidden, spec.ffn, spec.heads, spec.kv_heads, spec.head_dim, spec.rms_eps
        )
        if self.dense:
            table = dequantize(embedding)
            head = table if output is embedding else dequantize(output)
            return DecoderWeights(
                DenseEmbedding(table),
                DenseStack([DenseLayer.of(layer) for layer in layers], sizes),
                norm,
                DenseHead(head),
                self.nbytes,
            )
        return DecoderWeights(
            PackedEmbedding(embedding, self.backend),
            PackedStack(layers, sizes, self.backend),
            norm,
            PackedHead(output, self.backend),
            self.nbytes,
        )

    def _layer(self, prefix: str) -> Layer:
        spec = self.spec

        def projection(name: str, width: int) -> tuple[QWeight, Tensor | None]:
            order = self._rope_rows(width) if name != "v" else None
            weight = self._matrix(f"{prefix}.attn_{name}.weight", width, spec.hidden, order)
            bias = f"{prefix}.attn_{name}.bias"
            return weight, self._vector(bias, width, order) if spec.qkv_bias else None

        def matrix(name: str, rows: int, cols: int) -> QWeight:
            return self._matrix(f"{prefix}.{name}.weight", rows, cols)

        q, q_bias = projection("q", spec.q_width)
        k, k_bias = projection("k", spec.kv_width)
        v, v_bias = projection("v", spec.kv_width)
        attn_norm = self._vector(f"{prefix}.attn_norm.weight", spec.hidden)
        return Layer(
            attn_norm=attn_norm,
            qkv=(q, k, v),
            qkv_bias=(q_bias, k_bias, v_bias),
            attn_out=matrix("attn_output", spec.hidden, spec.q_width),
            ffn_norm=self._vector(f"{prefix}.ffn_norm.weight", spec.hidden),
            gate_up=(
                matrix("ffn_gate", spec.ffn, spec.hidden),
                matrix("ffn_up", spec.ffn, spec.hidden),
            ),
            down=matrix("ffn_down", spec.hidden, spec.ffn),
            key_scale=key_scale(dequantize(k), k_bias, attn_norm, spec.kv_heads),
        )

    def _rope_rows(self, width: int) -> npt.NDArray[np.int64] | None:
        """Row order that converts pairs (2i, 2i + 1) of each head to halves (i, D/2 + i)."""
        if not self.spec.interleaved_rope_rows:
            return None
        head_dim = self.spec.head_dim
        order = np.arange(width).reshape(width // head_dim, head_dim // 2, 2)
        return np.ascontiguousarray(order.swapaxes(1, 2)).reshape(-1)

    def _matrix(
        self, name: str, rows: int, cols: int, order: npt.NDArray[np.int64] | None = None
    ) -> QWeight:
        tensor = self.file.tensor(name, (rows, cols))
        if tensor.kind not in FORMATS:
            raise UnsupportedModel(self.file.path, f"tensor {name}", FORMATS, tensor.kind)
        weight = self._made(tensor, order)
        self.nbytes += rows * cols * torch.float32.itemsize if self.dense else weight.nbytes
        return weight

    def _made(self, tensor: GgufTensor, order: npt.NDArray[np.int64] | None) -> QWeight:
        name, rows, cols = tensor.name, tensor.rows, tensor.cols
        adapter = None if self.adapter is None or name not in self.adapter else self.adapter
        if self._packed is not None:
            kind = tensor.kind if adapter is None else KIND
            return self._packed.weight(name, kind, rows, cols)
        adapted = None if adapter is None else adapter.adapted(tensor, order)
        if adapted is not None:
            weight = pack(KIND, adapted, rows, cols)
        else:
            raw = tensor.raw if order is None else tensor.raw[order]
            weight = pack(tensor.kind, raw, rows, cols)
        if self._writer is not None:
            self._writer.add(name, weight)
        return weight

    def _vector(self, name: str, length: int, order: npt.NDArray[np.int64] | None = None) -> Tensor:
        vector = self.file.vector(name, length)
        self.nbytes += vector.nbytes
        return torch.from_numpy(vector if order is None else vector[order])
