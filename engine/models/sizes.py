"""Published sizes, for random weights in speed measurements, and one for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headstart.engine.errors import BadSettings
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.engine.models.decoder.choice import Build, in_torch
from headstart.engine.models.qwen2_5_omni import Qwen25Omni
from headstart.engine.models.qwen2_vl import Qwen2Vl

SIZES = ("3b", "7b", "qwen2-vl-7b", "tiny")
"""Qwen2.5-Omni's two, Qwen2-VL's, and an Omni that no one published, to try things with."""

QWEN2_VL = "qwen2-vl-7b"
# Decoder: hidden, layers, heads, kv_heads, ffn, vocabulary.
_DECODERS = {
    "3b": (2048, 36, 16, 2, 11_008, 151_936),
    "7b": (3584, 28, 28, 4, 18_944, 152_064),
    QWEN2_VL: (3584, 28, 28, 4, 18_944, 152_064),
    "tiny": (64, 2, 4, 2, 96, 151_936),
}
_SECTIONS = {"tiny": [2, 3, 3]}  # of M-RoPE: half a head's width in all
_TINY_AUDIO = {
    "num_mel_bins": 80,
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
}
_TINY_VISION = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "fullatt_block_indexes": [1],
}


def config_of(size: str) -> Config:
    """The config.json at `size`, an Omni's Thinker's. Raises `BadSettings` for another size."""
    if size not in SIZES:
        raise BadSettings("size", f"one of {', '.join(SIZES)}", size)
    hidden, layers, heads, kv_heads, ffn, vocabulary = _DECODERS[size]
    text: dict[str, Any] = {
        "model_type": "qwen2_vl_text" if size == QWEN2_VL else "qwen2_5_omni_text",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocabulary,
        "max_position_embeddings": 32_768,
        "rope_parameters": {
            "rope_theta": 1e6,
            "mrope_section": _SECTIONS.get(size, [16, 24, 24]),
        },
        "head_dim": hidden // heads,
    }
    tiny = size == "tiny"
    if size == QWEN2_VL:
        values = {"text_config": text, "vision_config": {"hidden_size": hidden}}
        return Config(Path(size), values)
    audio = {"output_dim": hidden, **(_TINY_AUDIO if tiny else {})}
    vision = {"out_hidden_size": hidden, **(_TINY_VISION if tiny else {})}
    values = {"text_config": text, "audio_config": audio, "vision_config": vision}
    return Config(Path(f"qwen2_5_omni-{size}"), values)


def sized(
    size: str,
    tensors: Tensors,
    build: Build = in_torch,
    *,
    answer_opening: Sequence[int] = (),
) -> Qwen25Omni | Qwen2Vl:
    """The whole model at `size` on `tensors`, which may be random for measurements of cost."""
    config = config_of(size)
    if size == QWEN2_VL:
        return Qwen2Vl(tensors, config, answer_opening=answer_opening, build=build)
    return Qwen25Omni(tensors, config, answer_opening=answer_opening, build=build)
