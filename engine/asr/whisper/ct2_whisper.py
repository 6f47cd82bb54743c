"""A CTranslate2 Whisper (`model.bin`) under our names.

Its matrices may be int8 with a scale for each row, or int16 with one scale: they are turned back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.engine.asr.whisper.settings import ENGLISH_ONLY_VOCABULARY, Extras, WhisperSettings
from headstart.engine.asr.whisper.source import EMBEDDING, WhisperSource
from headstart.engine.checkpoints.ctranslate2 import read_ct2
from headstart.engine.checkpoints.named import Tensors, pairs, read_json_value, whole_numbers
from headstart.engine.errors import BadWeights

_EMBEDDING_THERE = "decoder/embeddings/weight"
_HEAD_THERE = "decoder/projection/weight"


def ct2_source(path: Path, config: Mapping[str, Any]) -> WhisperSource:
    """`path`: model.bin; `config`: config.json beside it. Raises `BadWeights`."""
    file = read_ct2(path)
    if file.spec != "WhisperSpec":
        raise BadWeights(path, "spec", "WhisperSpec", file.spec)
    tensors = Tensors(path, file.tensors)
    width, mels, _ = tensors.shape("encoder/conv1/weight", 3)
    settings = WhisperSettings(
        mels=mels,
        width=width,
        heads=int(tensors["encoder/num_heads"]),
        ffn=tensors.shape("encoder/layer_0/ffn/linear_0/weight", 2)[0],
        encoder_layers=tensors.count("encoder/layer_{}/ffn/linear_0/weight"),
        decoder_layers=tensors.count("decoder/layer_{}/ffn/linear_0/weight"),
        vocabulary=tensors.shape(_EMBEDDING_THERE, 2)[0],
        audio_positions=tensors.shape("encoder/position_encodings/encodings", 2)[0],
        text_positions=tensors.shape("decoder/position_encodings/encodings", 2)[0],
    )
    config_path = path.parent / "config.json"
    extras = Extras(
        alignment_heads=pairs(config_path, config, "alignment_heads"),
        suppress=whole_numbers(config_path, config, "suppress_ids"),
        suppress_first=whole_numbers(config_path, config, "suppress_ids_begin"),
        multilingual=settings.vocabulary > ENGLISH_ONLY_VOCABULARY,
        ids=_special_ids(path.parent),
    )
    names = dict(_names(settings))
    is_alias = file.tensors.are_one(_HEAD_THERE, _EMBEDDING_THERE)
    head = None if is_alias or _is_tied(tensors) else partial(_float, tensors, _HEAD_THERE)
    return WhisperSource(path, settings, extras, lambda name: _float(tensors, names[name]), head)


def _is_tied(tensors: Tensors) -> bool:
    """Whether the embedding is the vocabulary head too, or equal to it."""
    if _HEAD_THERE not in tensors:
        return True
    return torch.equal(_float(tensors, _HEAD_THERE), _float(tensors, _EMBEDDING_THERE))


def _float(tensors: Tensors, name: str) -> Tensor:
    """The tensor of that name, turned back where it is quantised."""
    tensor = tensors[name]
    if tensor.dtype not in (torch.int8, torch.int16):
        return tensor
    scale = tensors[f"{name}_scale"].float()
    return tensor.float() / (scale[:, None] if scale.ndim else scale)


def _special_ids(directory: Path) -> dict[str, int]:
    """Ids of the special tokens by the vocabulary that lies beside the model, if one does."""
    as_json, as_text = directory / "vocabulary.json", directory / "vocabulary.txt"
    if as_json.is_file():
        words = read_json_value(as_json)
        if not isinstance(words, list):
            raise BadWeights(as_json, "content", "a list of tokens", type(words).__name__)
    elif as_text.is_file():
        words = as_text.read_text(encoding="utf-8", errors="replace").split("\n")
    else:
        return {}
    # Special tokens only: the format writes other words in its own way.
    return {word: place for place, word in enumerate(words) if str(word).startswith("<|")}


def _names(settings: WhisperSettings) -> Iterator[tuple[str, str]]:
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
    yield EMBEDDING, _EMBEDDING_THERE
