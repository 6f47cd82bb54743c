"""Tiny random `transformers` models of the smaller families, saved as directories."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.engine.models.sizes import MISTRAL, OMNI_VISION, PIXTRAL, QWEN2_VISION, SIGLIP, TEXT

transformers: Any = importlib.import_module("transformers")
IMAGE, VIDEO, BOS, EOS = 191, 192, 196, 197


def qwen2_vl() -> Any:
    config = transformers.Qwen2VLConfig(
        text_config={
            **TEXT,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [2, 3, 3],
            },
        },
        vision_config={**QWEN2_VISION},
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=BOS,
        vision_end_token_id=EOS,
        tie_word_embeddings=False,
    )
    return lively(transformers.Qwen2VLForConditionalGeneration, config)


def qwen2_5_vl() -> Any:
    config = transformers.Qwen2_5_VLConfig(
        text_config={
            **TEXT,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [2, 3, 3],
            },
        },
        vision_config={**OMNI_VISION, "tokens_per_second": 2},
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=BOS,
        vision_end_token_id=EOS,
        tie_word_embeddings=False,
    )
    return lively(transformers.Qwen2_5_VLForConditionalGeneration, config)


def llava_onevision(tile_px: int = 70, vocab_size: int = TEXT["vocab_size"]) -> Any:
    config = transformers.LlavaOnevisionConfig(
        vision_config={**SIGLIP, "image_size": tile_px},
        text_config={"model_type": "qwen2", **TEXT, "vocab_size": vocab_size},
        image_token_index=IMAGE,
        video_token_index=VIDEO,
        image_grid_pinpoints=[[tile_px * i, tile_px * j] for i in (1, 2, 3) for j in (1, 2, 3)],
        vision_aspect_ratio="anyres_max_6",
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    return lively(transformers.LlavaOnevisionForConditionalGeneration, config)


def pixtral(vocab_size: int = TEXT["vocab_size"], **changes: Any) -> Any:
    config = transformers.LlavaConfig(
        vision_config={**PIXTRAL, **changes},
        text_config={**MISTRAL, "vocab_size": vocab_size},
        image_token_index=IMAGE,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    return lively(transformers.LlavaForConditionalGeneration, config)


def mistral(**changes: Any) -> Any:
    config = transformers.MistralConfig(**{**MISTRAL, **changes})
    return lively(transformers.MistralForCausalLM, config)


def qwen2(**changes: Any) -> Any:
    config = transformers.Qwen2Config(**{**TEXT, **changes})
    return lively(transformers.Qwen2ForCausalLM, config)


def whisper() -> Any:
    """An encoder in a whole Whisper, with positions for 4 s."""
    config = transformers.WhisperConfig(
        vocab_size=100,
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=16,
        max_source_positions=200,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return lively(transformers.WhisperForConditionalGeneration, config)


def lively(kind: Any, config: Any) -> Any:
    """Random weights in fp64, large enough that a mistake shows in the logits."""
    config._attn_implementation = "sdpa"
    torch.manual_seed(0)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model.double()


def save(model: Any, folder: Path) -> Path:
    """As `transformers` writes it, in fp64, with a small pixel budget."""
    model.save_pretrained(folder)
    budget = {"min_pixels": 28 * 28, "max_pixels": 64 * 28 * 28}
    (folder / "preprocessor_config.json").write_text(json.dumps(budget))
    return folder


@contextlib.contextmanager
def in_double(family: str) -> Iterator[None]:
    """`transformers`' norms and angles in fp64 (see `omni_twin.in_double`)."""
    module: Any = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    with contextlib.ExitStack() as stack:
        for name, method in _IN_DOUBLE.items():
            for kind in vars(module).values():
                if isinstance(kind, type) and kind.__name__.endswith(name):
                    stack.callback(setattr, kind, "forward", kind.__dict__["forward"])
                    kind.forward = method  # type: ignore[attr-defined]
        if hasattr(module, "apply_rotary_pos_emb_vision"):
            before = module.apply_rotary_pos_emb_vision
            stack.callback(setattr, module, "apply_rotary_pos_emb_vision", before)
            module.apply_rotary_pos_emb_vision = _turned
        yield


def _norm(self: Any, x: Tensor) -> Tensor:
    scaled: Tensor = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
    weighted: Tensor = scaled * self.weight
    return weighted


def _text_angles(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, ...]:
    dim = getattr(self.config, "head_dim", None)
    dim = dim or self.config.hidden_size // self.config.num_attention_heads
    freqs = position_ids[..., None].double() * _rates(self, dim)
    both = freqs.cos(), freqs.sin()
    if position_ids.dim() == 3:
        return tuple(self.recomposition_frequencies(f) for f in both)
    return tuple(torch.cat((f, f), dim=-1) for f in both)


def _vision_angles(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, ...]:
    width = getattr(self.config, "embed_dim", self.config.hidden_size)
    dim = width // self.config.num_heads // 2
    freqs = position_ids[..., None].double() * _rates(self, dim)
    return tuple(self.recomposition_frequencies(f) for f in (freqs.cos(), freqs.sin()))


def _pixtral_angles(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, ...]:
    rates = _rates(self, self.config.head_dim)
    freqs = position_ids[..., None].double() * torch.cat([rates[0::2], rates[1::2]])
    return tuple(self.recomposition_frequencies(f) for f in (freqs.cos(), freqs.sin()))


def _rates(self: Any, dim: int) -> Tensor:
    base = float(self.config.rope_parameters["rope_theta"])
    return 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def _turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    return tuple(x * cos + _half_turn(x) * sin for x in (q, k))


def _half_turn(x: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


_IN_DOUBLE = {
    "VLRotaryEmbedding": _text_angles,
    "Qwen2RotaryEmbedding": _text_angles,
    "LlamaRotaryEmbedding": _text_angles,
    "MistralRotaryEmbedding": _text_angles,
    "VisionRotaryEmbedding": _vision_angles,
    "PixtralVisionRotaryEmbedding": _pixtral_angles,
    "RMSNorm": _norm,
}
