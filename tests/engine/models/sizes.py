"""Sizes of the tiny random models, as `transformers`' configs spell them in every version."""

from __future__ import annotations

from typing import Any

VOCAB = 200
TEXT: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
OMNI_AUDIO: dict[str, Any] = {
    "num_mel_bins": 16,
    "d_model": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "max_source_positions": 100,
    "n_window": 100,
    "output_dim": 64,
}
OMNI_VISION: dict[str, Any] = {
    "depth": 4,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "window_size": 56,
    "out_hidden_size": 64,
    "fullatt_block_indexes": [1, 3],
}
QWEN2_VISION: dict[str, Any] = {
    "depth": 2,
    "embed_dim": 32,
    "hidden_size": 64,
    "num_heads": 2,
    "mlp_ratio": 2,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
SIGLIP: dict[str, Any] = {
    "model_type": "siglip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 70,
    "patch_size": 14,
    "vision_use_head": False,
}
PIXTRAL: dict[str, Any] = {
    "model_type": "pixtral",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 64,
    "patch_size": 16,
    "hidden_act": "silu",
}
MISTRAL: dict[str, Any] = {
    **TEXT,
    "model_type": "mistral",
    "head_dim": 24,  # as in Pixtral, heads are together not as wide as the model
    "sliding_window": None,
    "rms_norm_eps": 1e-5,
}
