"""A decoder's weights: packed as they are in the file, or dequantised for the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.decoder.spec import DecoderSpec
from engine.errors import UnsupportedModel
from engine.gguf_file import GgufFile
from kernels.qlinear import FORMATS, QWeight, dequantize, pack, qlinear_many
from kernels.qlinear import rows as gather_rows

Tick = Callable[[int, int], None]  # layers done, layers in all


class Projection(Protocol):
    """One input through one or several weights that share it."""

    def __call__(self, x: Tensor) -> list[Tensor]:
        """fp32 [rows, K] -> one fp32 [rows, N_i] per weight."""


class Embedding(Protocol):
    def __call__(self, tokens: Tensor) -> Tensor:
        """int64 [rows] -> fp32 [rows, hidden]."""


class PackedProjection:
    """Weights as they are in the file, multiplied by a C kernel (batch-invariant)."""

    def __init__(
        self, weights: Sequence[QWeight], biases: Sequence[Tensor | None], backend: str
    ) -> None:
        self.weights, self.biases, self.backend = tuple(weights), tuple(biases), backend

    def __call__(self, x: Tensor) -> list[Tensor]:
        return qlinear_many(x, self.weights, self.biases, backend=self.backend)


class DenseProjection:
    """Weights as fp32, multiplied by torch: exact, large, slow."""

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> None:
        self.weights, self.biases = tuple(weights), tuple(biases)

    def __call__(self, x: Tensor) -> list[Tensor]:
        return [
            torch.nn.functional.linear(x, weight, bias)
            for weight, bias in zip(self.weights, self.biases, strict=True)
        ]


class PackedEmbedding:
    def __init__(self, weight: QWeight, backend: str) -> None:
        self.weight, self.backend = weight, backend

    def __call__(self, tokens: Tensor) -> Tensor:
        return gather_rows(self.weight, tokens, backend=self.backend)


class DenseEmbedding:
    def __init__(self, weight: Tensor) -> None:
        self.weight = weight

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    attn_norm: Tensor  # fp32 [hidden]
    qkv: Projection  # hidden -> q_width, kv_width, kv_width
    attn_out: Projection  # q_width -> hidden
    ffn_norm: Tensor  # fp32 [hidden]
    gate_up: Projection  # hidden -> ffn, ffn
    down: Projection  # ffn -> hidden


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    embedding: Embedding
    layers: tuple[LayerWeights, ...]
    output_norm: Tensor  # fp32 [hidden]
    output: Projection  # hidden -> vocab_size
    nbytes: int  # of all weights, as they lie in memory


class WeightLoader:
    """Takes a decoder's tensors out of a GGUF file, checking each one's name and shape."""

    def __init__(self, file: GgufFile, spec: DecoderSpec, backend: str) -> None:
        self.file, self.spec, self.backend = file, spec, backend
        self.dense = backend == "reference"
        self.nbytes = 0

    def load(self, tick: Tick) -> DecoderWeights:
        """Raises `BadWeights` naming the tensor that is missing or of a wrong shape."""
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
        embed: Embedding
        head: Projection
        if self.dense:
            table = dequantize(embedding)
            embed = DenseEmbedding(table)
            head = DenseProjection([table if output is embedding else dequantize(output)], [None])
        else:
            embed = PackedEmbedding(embedding, self.backend)
            head = PackedProjection([output], [None], self.backend)
        norm = self._vector("output_norm.weight", spec.hidden)
        return DecoderWeights(embed, tuple(layers), norm, head, self.nbytes)

    def _layer(self, prefix: str) -> LayerWeights:
        spec = self.spec
        widths = {"q": spec.q_width, "k": spec.kv_width, "v": spec.kv_width}
        qkv, biases = [], []
        for name, width in widths.items():
            order = self._rope_rows(width) if name != "v" else None
            qkv.append(self._matrix(f"{prefix}.attn_{name}.weight", width, spec.hidden, order))
            bias = f"{prefix}.attn_{name}.bias"
            biases.append(self._vector(bias, width, order) if spec.qkv_bias else None)

        def single(name: str, rows: int, cols: int) -> Projection:
            return self._projection([self._matrix(f"{prefix}.{name}.weight", rows, cols)], [None])

        gate_up = [
            self._matrix(f"{prefix}.ffn_{name}.weight", spec.ffn, spec.hidden)
            for name in ("gate", "up")
        ]
        return LayerWeights(
            attn_norm=self._vector(f"{prefix}.attn_norm.weight", spec.hidden),
            qkv=self._projection(qkv, biases),
            attn_out=single("attn_output", spec.hidden, spec.q_width),
            ffn_norm=self._vector(f"{prefix}.ffn_norm.weight", spec.hidden),
            gate_up=self._projection(gate_up, [None, None]),
            down=single("ffn_down", spec.hidden, spec.ffn),
        )

    def _rope_rows(self, width: int) -> npt.NDArray[np.int64] | None:
        """Row order that turns pairs (2i, 2i + 1) of each head into halves (i, D/2 + i)."""
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
        raw = tensor.raw if order is None else tensor.raw[order]
        weight = pack(tensor.kind, raw, rows, cols)
        self.nbytes += rows * cols * torch.float32.itemsize if self.dense else weight.nbytes
        return weight

    def _vector(self, name: str, length: int, order: npt.NDArray[np.int64] | None = None) -> Tensor:
        vector = self.file.vector(name, length)
        self.nbytes += vector.nbytes
        return torch.from_numpy(vector if order is None else vector[order])

    def _projection(
        self, weights: Sequence[QWeight], biases: Sequence[Tensor | None]
    ) -> Projection:
        if self.dense:
            return DenseProjection([dequantize(weight) for weight in weights], biases)
        return PackedProjection(weights, biases, self.backend)
