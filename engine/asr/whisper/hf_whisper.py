"""A Hugging Face Whisper (`model.safetensors`, whole or sharded) under our names.

Query, key and value matrices, apart there, become one; keys have no bias there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.engine.asr.whisper.settings import ENGLISH_ONLY_VOCABULARY, Extras, WhisperSettings
from headstart.engine.asr.whisper.source import WhisperSource
from headstart.engine.checkpoints.named import Tensors, pairs, read_json, whole_numbers
from headstart.engine.checkpoints.safetensors import SHARDS_FILE, read_safetensors, read_shards
from headstart.engine.errors import BadWeights

WHOLE_FILE = "model.safetensors"
_HEAD_THERE = "proj_out.weight"

_SIZES = {
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
# What our modules take for granted, where the config says anything about it.
_GIVEN = {
    "model_type": "whisper",
    "activation_function": "gelu",
    "scale_embedding": False,
}
_SAME = (
    ("decoder_attention_heads", "encoder_attention_heads"),
    ("decoder_ffn_dim", "encoder_ffn_dim"),
)
_IDS = {"<|startoftranscript|>": "decoder_start_token_id", "<|endoftext|>": "eos_token_id"}

# Rewrites of one of our names, in order; what remains is the same there.
_RENAMES = (
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


def is_hugging_face(directory: Path) -> bool:
    """Whether its weights lie there as safetensors."""
    return any((directory / name).is_file() for name in (WHOLE_FILE, SHARDS_FILE))


def hugging_face_source(directory: Path, config: Mapping[str, Any]) -> WhisperSource:
    """`config`: config.json of the directory. Raises `BadWeights`."""
    config_path = directory / "config.json"
    settings = _settings(config_path, config)
    if (directory / WHOLE_FILE).is_file():
        path = directory / WHOLE_FILE
        tensors = Tensors(path, read_safetensors(path))
    else:
        path = directory / SHARDS_FILE
        tensors = Tensors(path, read_shards(path))
    tied = config.get("tie_word_embeddings", True)
    head = None if tied else partial(tensors.__getitem__, _HEAD_THERE)
    extras = _extras(directory, config, settings)
    return WhisperSource(path, settings, extras, partial(_tensor, tensors, settings), head)


def _settings(path: Path, config: Mapping[str, Any]) -> WhisperSettings:
    for key, wanted in _GIVEN.items():
        if config.get(key, wanted) != wanted:
            raise BadWeights(path, key, repr(wanted), repr(config[key]))
    sizes = {}
    for ours, theirs in _SIZES.items():
        value = config.get(theirs)
        if type(value) is not int or value <= 0:
            raise BadWeights(path, theirs, "a positive whole number", repr(value))
        sizes[ours] = value
    for key, like in _SAME:
        if config.get(key, config[like]) != config[like]:
            raise BadWeights(path, key, f"{config[like]}, as {like}", repr(config[key]))
    return WhisperSettings(**sizes)


def _extras(directory: Path, config: Mapping[str, Any], settings: WhisperSettings) -> Extras:
    path = directory / "generation_config.json"
    hints = read_json(path) if path.is_file() else config
    by_size = settings.vocabulary > ENGLISH_ONLY_VOCABULARY
    found = {token: hints.get(key, config.get(key)) for token, key in _IDS.items()}
    return Extras(
        alignment_heads=pairs(path, hints, "alignment_heads"),
        suppress=whole_numbers(path, hints, "suppress_tokens"),
        suppress_first=whole_numbers(path, hints, "begin_suppress_tokens"),
        multilingual=bool(hints.get("is_multilingual", by_size)),
        ids={token: number for token, number in found.items() if type(number) is int},
    )


def _tensor(tensors: Tensors, settings: WhisperSettings, name: str) -> Tensor:
    """The tensor of one of our names, put together from its parts."""
    # Saved without its head, the model has no prefix.
    theirs = name if "encoder.conv1.weight" in tensors else "model." + name
    for ours, there in _RENAMES:
        theirs = theirs.replace(ours, there)
    for joined, parts in ((".qkv.", "qkv"), (".kv.", "kv"), (".q.", "q")):
        if joined in theirs:
            pieces = []
            for part in parts:
                if part == "k" and theirs.endswith("bias"):
                    pieces.append(torch.zeros(settings.width))
                else:
                    pieces.append(
                        _part(tensors, settings, theirs.replace(joined, f".{part}_proj."))
                    )
            return torch.cat(pieces)
    return tensors[theirs]


def _part(tensors: Tensors, settings: WhisperSettings, name: str) -> Tensor:
    """One of the matrices or biases that become one, checked before its own name is gone."""
    tensor, width = tensors[name], settings.width
    wanted = [width] if name.endswith("bias") else [width, width]
    if list(tensor.shape) != wanted:
        raise BadWeights(tensors.path, name, str(wanted), str(list(tensor.shape)))
    return tensor.float()
