"""Published sizes of the flagship model, for random weights in speed measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headstart.engine.errors import BadSettings
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.engine.models.decoder.choice import Build, in_torch
from headstart.engine.models.qwen2_5_omni import Qwen25Omni

SIZES = ("3b", "7b")
# Decoder: hidden, layers, heads, kv_heads, ffn, vocabulary.
_DECODERS = {
    "3b": (2048, 36, 16, 2, 11_008, 151_936),
    "7b": (3584, 28, 28, 4, 18_944, 152_064),
}


def omni_config(size: str) -> Config:
    """The Thinker's config.json at `size`. Raises `BadSettings` for an unpublished size."""
    if size not in SIZES:
        raise BadSettings("size", f"one of {', '.join(SIZES)}", size)
    hidden, layers, heads, kv_heads, ffn, vocabulary = _DECODERS[size]
    values: dict[str, Any] = {
        "text_config": {
            "model_type": "qwen2_5_omni_text",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "intermediate_size": ffn,
            "vocab_size": vocabulary,
            "max_position_embeddings": 32_768,
            "rope_parameters": {"rope_theta": 1e6, "mrope_section": [16, 24, 24]},
            "head_dim": 128,
        },
        "audio_config": {"output_dim": hidden},
        "vision_config": {"out_hidden_size": hidden},
    }
    return Config(Path(f"qwen2_5_omni-{size}"), values)


def sized_omni(
    size: str,
    tensors: Tensors,
    build: Build = in_torch,
    *,
    answer_opening: Sequence[int] = (),
) -> Qwen25Omni:
    """The whole model at `size` on `tensors`, which may be random for measurements of cost."""
    config = omni_config(size)
    return Qwen25Omni(tensors, config, answer_opening=answer_opening, build=build)
