"""A Whisper directory from disk: CTranslate2 (`model.bin`) or Hugging Face (`model.safetensors`).

Both are renamed to the names of our own modules; query, key and value matrices become one. Whisper
has no bias on keys: Hugging Face leaves it out, CTranslate2 stores zeros.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.ears.ct2 import read_ct2
from engine.ears.packed import GROUP, pack_linears
from engine.ears.packed_layers import decoder_layers, encoder_layers, have_native_sizes
from engine.ears.safetensors_reader import read_safetensors
from engine.ears.settings import Extras, WhisperSettings
from engine.ears.vocabulary import ExactVocabulary, PackedVocabulary
from engine.ears.whisper import WhisperEncoder
from engine.ears.whisper_decoder import WhisperDecoder
from engine.errors import BadWeights

TOKENIZER_FILE = "tokenizer.json"
_EMBEDDING = "decoder.embedding"


@dataclass(frozen=True)
class Checkpoint:
    """A loaded model. Unless exact, its matrices and vocabulary are int8 (`packed`), and then what
    is computed for one sound does not depend on what else is in its batch."""

    settings: WhisperSettings
    extras: Extras
    encoder: WhisperEncoder
    decoder: WhisperDecoder


def load_checkpoint(directory: Path, exact: bool = False) -> Checkpoint:
    """Load a Whisper directory; `exact`: all in fp32. Raises `BadWeights`."""
    for required in ("config.json", TOKENIZER_FILE):
        if not (directory / required).is_file():
            raise BadWeights(directory, "Whisper directory", required, "no such file")
    config = read_json(directory / "config.json")
    if (directory / "model.bin").is_file():
        return _load_ct2(directory / "model.bin", config, exact)
    if (directory / "model.safetensors").is_file():
        return _load_hugging_face(directory / "model.safetensors", config, exact)
    raise BadWeights(directory, "Whisper directory", "model.bin or model.safetensors", "neither")


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object. Raises `BadWeights`."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not JSON, or not UTF-8
        raise BadWeights(path, "content", "JSON", str(error)) from error
    if not isinstance(value, dict):
        raise BadWeights(path, "content", "a JSON object", type(value).__name__)
    return value


class _Tensors:
    """Named tensors with errors that say what was expected."""

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        self.path = path
        self._tensors = tensors

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise BadWeights(self.path, "tensors", name, "no such tensor")
        return self._tensors[name]

    def shape(self, name: str, axes: int) -> tuple[int, ...]:
        shape = tuple(self[name].shape)
        if len(shape) != axes:
            raise BadWeights(self.path, name, f"{axes} axes", str(list(shape)))
        return shape

    def count(self, pattern: str) -> int:
        """How many of pattern.format(0), pattern.format(1), … there are, without a gap."""
        n = 0
        while pattern.format(n) in self._tensors:
            n += 1
        return n


def _build(
    path: Path,
    settings: WhisperSettings,
    extras: Extras,
    source: Callable[[str], Tensor],
    exact: bool,
) -> Checkpoint:
    """Fill our modules from `source`, which knows tensors by our names."""

    def take(name: str, shape: Iterable[int]) -> Tensor:
        tensor, wanted = source(name), list(shape)
        if list(tensor.shape) != wanted:
            raise BadWeights(path, name, str(wanted), str(list(tensor.shape)))
        if not tensor.is_floating_point():
            raise BadWeights(path, name, "floating point", str(tensor.dtype))
        return tensor

    if settings.width % settings.heads or settings.width % GROUP or settings.ffn % GROUP:
        wanted = f"multiples of {settings.heads} heads and of {GROUP}"
        raise BadWeights(path, "width and ffn", wanted, f"{settings.width}, {settings.ffn}")
    embedding = take(_EMBEDDING, (settings.vocabulary, settings.width))
    vocabulary = ExactVocabulary(embedding) if exact else PackedVocabulary(embedding)
    with torch.device("meta"):
        encoder = WhisperEncoder(settings)
        decoder = WhisperDecoder(settings, vocabulary)
    for part, module in (("encoder", encoder), ("decoder", decoder)):
        wanted_state = module.state_dict().items()
        state = {name: take(f"{part}.{name}", like.shape).float() for name, like in wanted_state}
        module.load_state_dict(state, assign=True)
        module.eval().requires_grad_(False)
    if not exact:
        pack_linears(encoder)
        pack_linears(decoder)
        if have_native_sizes(settings):
            encoder.packed = encoder_layers(encoder.stack, settings.heads)
            decoder.packed = decoder_layers(decoder.stack, settings.heads)
    _check_heads(path, settings, extras)
    return Checkpoint(settings, extras, encoder, decoder)


def _check_heads(path: Path, settings: WhisperSettings, extras: Extras) -> None:
    for layer, head in extras.alignment_heads:
        if not (0 <= layer < settings.decoder_layers and 0 <= head < settings.heads):
            bounds = f"below ({settings.decoder_layers}, {settings.heads})"
            raise BadWeights(path, "alignment head", bounds, f"({layer}, {head})")


# --- CTranslate2 ----------------------------------------------------------------------------------


def _load_ct2(path: Path, config: Mapping[str, Any], exact: bool) -> Checkpoint:
    file = read_ct2(path)
    if file.spec != "WhisperSpec":
        raise BadWeights(path, "spec", "WhisperSpec", file.spec)
    tensors = _Tensors(path, file.tensors)
    width, mels, _ = tensors.shape("encoder/conv1/weight", 3)
    settings = WhisperSettings(
        mels=mels,
        width=width,
        heads=int(tensors["encoder/num_heads"]),
        ffn=tensors.shape("encoder/layer_0/ffn/linear_0/weight", 2)[0],
        encoder_layers=tensors.count("encoder/layer_{}/ffn/linear_0/weight"),
        decoder_layers=tensors.count("decoder/layer_{}/ffn/linear_0/weight"),
        vocabulary=tensors.shape("decoder/embeddings/weight", 2)[0],
        audio_positions=tensors.shape("encoder/position_encodings/encodings", 2)[0],
        text_positions=tensors.shape("decoder/position_encodings/encodings", 2)[0],
    )
    extras = Extras(
        alignment_heads=tuple((int(a), int(b)) for a, b in config.get("alignment_heads", ())),
        suppress=tuple(config.get("suppress_ids", ())),
        suppress_first=tuple(config.get("suppress_ids_begin", ())),
    )
    names = dict(_ct2_names(settings))
    return _build(path, settings, extras, lambda name: tensors[names[name]], exact)


def _ct2_names(settings: WhisperSettings) -> Iterator[tuple[str, str]]:
    """Our names to CTranslate2's."""
    encoder = {"self_attention": ("attention", "qkv", "out"), "ffn": ("mlp", "up", "down")}
    decoder = {
        "self_attention": ("self_attention", "qkv", "out"),
        "attention": ("cross_attention", "q", "kv", "out"),
        "ffn": ("mlp", "up", "down"),
    }
    stacks = (
        ("encoder", settings.encoder_layers, encoder),
        ("decoder", settings.decoder_layers, decoder),
    )
    for part, layers, blocks in stacks:
        for i in range(layers):
            for theirs, (ours, *matrices) in blocks.items():
                there, here = f"{part}/layer_{i}/{theirs}", f"{part}.layers.{i}"
                for n, matrix in enumerate(matrices):
                    yield f"{here}.{ours}.{matrix}.weight", f"{there}/linear_{n}/weight"
                    yield f"{here}.{ours}.{matrix}.bias", f"{there}/linear_{n}/bias"
                norm = {"self_attention": "self", "cross_attention": "cross"}.get(ours, ours)
                yield f"{here}.{norm}_norm.weight", f"{there}/layer_norm/gamma"
                yield f"{here}.{norm}_norm.bias", f"{there}/layer_norm/beta"
        yield f"{part}.norm.weight", f"{part}/layer_norm/gamma"
        yield f"{part}.norm.bias", f"{part}/layer_norm/beta"
        yield f"{part}.positions", f"{part}/position_encodings/encodings"
    for conv in ("conv1", "conv2"):
        yield f"encoder.{conv}.weight", f"encoder/{conv}/weight"
        yield f"encoder.{conv}.bias", f"encoder/{conv}/bias"
    yield _EMBEDDING, "decoder/embeddings/weight"


# --- Hugging Face ---------------------------------------------------------------------------------

_HF_SIZES = {
    "mels": "num_mel_bins",
    "width": "d_model",
    "heads": "encoder_attention_heads",
    "ffn": "encoder_ffn_dim",
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "vocabulary": "vocab_size",
    "audio_positions": "max_source_positions",
    "text_positions": "max_target_positions",
}
# Rewrites of one of our names, in order; what remains is the same there.
_HF_RENAMES = (
    (".self_norm", ".self_attn_layer_norm"),
    (".cross_norm", ".encoder_attn_layer_norm"),
    (".attention_norm", ".self_attn_layer_norm"),
    (".mlp_norm", ".final_layer_norm"),
    (".self_attention.", ".self_attn."),
    (".cross_attention.", ".encoder_attn."),
    (".attention.", ".self_attn."),
    (".mlp.up", ".fc1"),
    (".mlp.down", ".fc2"),
    (".out.", ".out_proj."),
    ("coder.norm", "coder.layer_norm"),
    ("coder.positions", "coder.embed_positions.weight"),
    ("decoder.embedding", "decoder.embed_tokens.weight"),
)


def _load_hugging_face(path: Path, config: Mapping[str, Any], exact: bool) -> Checkpoint:
    sizes = {}
    for ours, theirs in _HF_SIZES.items():
        value = config.get(theirs)
        if not isinstance(value, int) or value <= 0:
            file = path.parent / "config.json"
            raise BadWeights(file, theirs, "a positive whole number", repr(value))
        sizes[ours] = value
    settings = WhisperSettings(**sizes)
    generation = path.parent / "generation_config.json"
    hints = read_json(generation) if generation.is_file() else config
    extras = Extras(
        alignment_heads=tuple((int(a), int(b)) for a, b in hints.get("alignment_heads") or ()),
        suppress=tuple(hints.get("suppress_tokens") or ()),
        suppress_first=tuple(hints.get("begin_suppress_tokens") or ()),
    )
    tensors = _Tensors(path, read_safetensors(path))
    source = partial(_from_hugging_face, tensors, settings)
    return _build(path, settings, extras, source, exact)


def _from_hugging_face(tensors: _Tensors, settings: WhisperSettings, name: str) -> Tensor:
    """The tensor of one of our names, put together from its parts."""
    theirs = "model." + name
    for ours, there in _HF_RENAMES:
        theirs = theirs.replace(ours, there)
    for joined, parts in ((".qkv.", "qkv"), (".kv.", "kv"), (".q.", "q")):
        if joined in theirs:
            pieces = []
            for part in parts:
                if part == "k" and theirs.endswith("bias"):
                    pieces.append(torch.zeros(settings.width))
                else:
                    pieces.append(tensors[theirs.replace(joined, f".{part}_proj.")].float())
            return torch.cat(pieces)
    return tensors[theirs]
