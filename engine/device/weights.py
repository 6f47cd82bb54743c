"""Loads a decoder's weights onto a device, from a GGUF file or from a model directory's tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.decoder.adapter import KIND, Adapter
from headstart.engine.decoder.key_scale import key_scale
from headstart.engine.decoder.quantise import blocks_of
from headstart.engine.device.matrices import FloatMatrix, Matrix, PackedMatrix, Projection
from headstart.engine.device.place import Place
from headstart.engine.errors import NoDevice, UnsupportedModel
from headstart.kernels.gpu.packed_weight import pack
from headstart.kernels.qlinear.formats import FORMATS

Tick = Callable[[int, int], None]  # layers loaded, layers in all


@dataclass(frozen=True, slots=True, eq=False)
class DeviceLayer:
    """One layer's weights. `key_scale` [kv_heads, head_dim]: keys are divided by it before they
    become codes, and queries multiplied (`engine.decoder.key_scale`)."""

    attn_norm: Tensor  # [hidden], wide
    qkv: Projection
    key_scale: Tensor
    out: Matrix
    ffn_norm: Tensor
    gate_up: Projection
    down: Matrix

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.qkv, self.out, self.gate_up, self.down))


@dataclass(frozen=True, slots=True, eq=False)
class DeviceWeights:
    """All weights of a decoder. `head` is `embedding` where they are tied."""

    embedding: Matrix
    layers: tuple[DeviceLayer, ...]
    norm: Tensor  # [hidden], wide
    head: Matrix

    @property
    def nbytes(self) -> int:
        """Of all matrices, on the device."""
        tables = {id(part): part.nbytes for part in (self.embedding, self.head)}
        return sum(tables.values()) + sum(layer.nbytes for layer in self.layers)


class Source:
    """A decoder's tensors by our names of a layer's parts; `None` for the layer means none."""

    def matrix(self, layer: int | None, *names: str) -> list[tuple[Matrix, list[int]]]:
        """The matrices called `names`, stacked where they can be, each with its widths."""
        raise NotImplementedError

    def vector(self, layer: int | None, name: str) -> Tensor:
        """On the host, fp32 or wider."""
        raise NotImplementedError

    def keys(self, layer: int) -> Tensor:
        """The key projection's weight on the host, in float."""
        raise NotImplementedError


def load(
    source: Source,
    spec: DecoderSpec,
    place: Place,
    tick: Tick = lambda done, total: None,
) -> DeviceWeights:
    """Raises `BadWeights` naming a tensor that is missing or misshapen, or `NoDevice` where they
    have no room."""
    try:
        return _load(source, spec, place, tick)
    except torch.OutOfMemoryError:
        missing = "its memory has no room for the weights"
        remedy = "use a smaller model, or --weights int8 with a model directory"
        raise NoDevice(str(place.device), missing, remedy) from None


def _load(source: Source, spec: DecoderSpec, place: Place, tick: Tick) -> DeviceWeights:
    def one(layer: int | None, name: str) -> Matrix:
        ((matrix, _),) = source.matrix(layer, name)
        return matrix

    def wide(vector: Tensor) -> Tensor:
        return vector.to(place.device, place.wide)

    def layer(i: int) -> DeviceLayer:
        norm, bias = source.vector(i, "attn_norm"), None
        if spec.qkv_bias:
            bias = torch.cat([source.vector(i, f"{name}.bias") for name in ("q", "k", "v")])
        k_bias = None if bias is None else bias[spec.q_width : spec.q_width + spec.kv_width]
        scale = key_scale(source.keys(i), k_bias, norm, spec.kv_heads)
        return DeviceLayer(
            attn_norm=wide(norm),
            qkv=Projection(
                source.matrix(i, "q", "k", "v"),
                None if bias is None else bias.to(place.device, place.dtype),
            ),
            key_scale=scale.to(place.device, place.dtype),
            out=one(i, "attn_out"),
            ffn_norm=wide(source.vector(i, "ffn_norm")),
            gate_up=Projection(source.matrix(i, "gate", "up")),
            down=one(i, "down"),
        )

    embedding = one(None, "embedding")
    head = embedding if spec.tied_output else one(None, "head")
    layers = []
    for i in range(spec.layers):
        tick(i, spec.layers)
        layers.append(layer(i))
    tick(spec.layers, spec.layers)
    return DeviceWeights(embedding, tuple(layers), wide(source.vector(None, "norm")), head)


def _shapes(spec: DecoderSpec) -> dict[str, tuple[int, int]]:
    hidden, ffn = spec.hidden, spec.ffn
    return {
        "embedding": (spec.vocab_size, hidden),
        "head": (spec.vocab_size, hidden),
        "q": (spec.q_width, hidden),
        "k": (spec.kv_width, hidden),
        "v": (spec.kv_width, hidden),
        "attn_out": (hidden, spec.q_width),
        "gate": (ffn, hidden),
        "up": (ffn, hidden),
        "down": (hidden, ffn),
    }


_GGUF_NAMES = {
    "embedding": "token_embd",
    "head": "output",
    "norm": "output_norm",
    **{name: f"attn_{name}" for name in "qkv"},
    "attn_out": "attn_output",
    **{name: f"ffn_{name}" for name in ("gate", "up", "down")},
}


@dataclass(frozen=True, slots=True)
class _Stored:
    """A matrix as GGUF has it."""

    kind: str
    raw: npt.NDArray[np.uint8]  # [rows, bytes per row]

    def floats(self) -> Tensor:
        import gguf  # half of its time is for its writers

        values = gguf.dequantize(self.raw, gguf.GGMLQuantizationType[self.kind])
        return torch.from_numpy(np.array(values, dtype=np.float32))


class GgufSource(Source):
    """A GGUF file's tensors, with an adapter's deltas if there is one."""

    def __init__(
        self, file: GgufFile, spec: DecoderSpec, place: Place, adapter: Adapter | None = None
    ) -> None:
        self._file, self._spec, self._place, self._adapter = file, spec, place, adapter
        self._sizes = _shapes(spec)

    def matrix(self, layer: int | None, *names: str) -> list[tuple[Matrix, list[int]]]:
        out: list[tuple[Matrix, list[int]]] = []
        for kind, group in _neighbours([(name, self._stored(layer, name)) for name in names]):
            raw = np.concatenate([stored.raw for _, stored in group])
            widths = [self._sizes[name][0] for name, _ in group]
            out.append((self._placed(_Stored(kind, raw), self._sizes[group[0][0]][1]), widths))
        return out

    def vector(self, layer: int | None, name: str) -> Tensor:
        part = name.removesuffix(".bias")
        full = self._name(layer, part) + (".bias" if part != name else ".weight")
        if part == name:
            return torch.from_numpy(self._file.vector(full, self._spec.hidden))
        length = self._sizes[part][0]
        values, order = self._file.vector(full, length), self._order(part, length)
        return torch.from_numpy(values if order is None else values[order])

    def keys(self, layer: int) -> Tensor:
        return self._stored(layer, "k").floats()

    def _placed(self, stored: _Stored, cols: int) -> Matrix:
        place, rows = self._place, len(stored.raw)
        if FORMATS[stored.kind].is_float:
            return FloatMatrix(stored.floats().to(place.device, place.dtype))
        return PackedMatrix(
            pack(stored.kind, stored.raw.reshape(-1), rows, cols).to(place.device),
            place.operations,
        )

    def _stored(self, layer: int | None, name: str) -> _Stored:
        tensor = self._file.tensor(f"{self._name(layer, name)}.weight", self._sizes[name])
        if tensor.kind not in FORMATS:
            raise UnsupportedModel(self._file.path, f"tensor {tensor.name}", FORMATS, tensor.kind)
        order = self._order(name, tensor.rows)
        adapted = None if self._adapter is None else self._adapter.adapted(tensor, order)
        if adapted is not None:
            return _Stored(KIND, adapted.reshape(tensor.rows, -1))
        return _Stored(tensor.kind, tensor.raw if order is None else tensor.raw[order])

    def _name(self, layer: int | None, name: str) -> str:
        name = _GGUF_NAMES.get(name, name)
        return name if layer is None else f"blk.{layer}.{name}"

    def _order(self, name: str, rows: int) -> npt.NDArray[np.int64] | None:
        """Row order that converts pairs (2i, 2i + 1) of each head to halves (i, D/2 + i)."""
        if not self._spec.interleaved_rope_rows or name not in ("q", "k"):
            return None
        half = self._spec.head_dim // 2
        order = np.arange(rows).reshape(-1, half, 2)
        return np.ascontiguousarray(order.swapaxes(1, 2)).reshape(-1)


def _neighbours(
    parts: Sequence[tuple[str, _Stored]],
) -> Iterator[tuple[str, list[tuple[str, _Stored]]]]:
    """Runs of the same kind, which can be stacked."""
    at = 0
    while at < len(parts):
        kind = parts[at][1].kind
        end = at
        while end < len(parts) and parts[end][1].kind == kind:
            end += 1
        yield kind, list(parts[at:end])
        at = end


_DIRECTORY_NAMES = {
    "embedding": "embed_tokens",
    "head": "lm_head",
    "norm": "norm",
    **{name: f"self_attn.{name}_proj" for name in "qkv"},
    "attn_out": "self_attn.o_proj",
    **{name: f"mlp.{name}_proj" for name in ("gate", "up", "down")},
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


class TensorsLike(Protocol):
    """`headstart.engine.models.checkpoint.tensors.Tensors`."""

    def take(self, name: str, *shape: int) -> Tensor: ...
    def copied(self, name: str) -> None: ...


class DirectorySource(Source):
    """A model directory's tensors by `transformers`' names, "decoder." and "lm_head.": in the
    activations' type, or in int8 (Q8_0)."""

    def __init__(
        self, tensors: TensorsLike, spec: DecoderSpec, place: Place, *, int8: bool
    ) -> None:
        self._tensors, self._spec, self._place, self._int8 = tensors, spec, place, int8
        self._sizes = _shapes(spec)

    def matrix(self, layer: int | None, *names: str) -> list[tuple[Matrix, list[int]]]:
        parts = [self._take(layer, name) for name in names]
        widths, cols = [len(part) for part in parts], parts[0].shape[1]
        matrix = self._packed(parts, cols) if self._int8 else self._floats(parts)
        for name in names:
            self._tensors.copied(self._name(layer, name))
        return [(matrix, widths)]

    def vector(self, layer: int | None, name: str) -> Tensor:
        part = name.removesuffix(".bias")
        if part == name:
            return self._wide(self._tensors.take(self._name(layer, name), self._spec.hidden))
        full = self._name(layer, part).removesuffix("weight") + "bias"
        return self._wide(self._tensors.take(full, self._sizes[part][0]))

    def keys(self, layer: int) -> Tensor:
        return self._take(layer, "k")

    def _wide(self, vector: Tensor) -> Tensor:
        return vector.to(self._place.wide)

    def _floats(self, parts: Sequence[Tensor]) -> Matrix:
        place = self._place
        return FloatMatrix(torch.cat([part.to(place.device, place.dtype) for part in parts]))

    def _packed(self, parts: Sequence[Tensor], cols: int) -> Matrix:
        raw = np.concatenate([blocks_of(part) for part in parts])
        weight = pack("Q8_0", raw.reshape(-1), sum(map(len, parts)), cols)
        return PackedMatrix(weight.to(self._place.device), self._place.operations)

    def _take(self, layer: int | None, name: str) -> Tensor:
        return self._tensors.take(self._name(layer, name), *self._sizes[name])

    def _name(self, layer: int | None, name: str) -> str:
        inside = "" if name == "head" else "decoder."
        return (
            f"{inside}{'' if layer is None else f'layers.{layer}.'}{_DIRECTORY_NAMES[name]}.weight"
        )
