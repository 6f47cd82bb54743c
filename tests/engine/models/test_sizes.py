"""Published sizes of the flagship model."""

from __future__ import annotations

import pytest

from headstart.engine.errors import BadSettings
from headstart.engine.kvcache.storage import kv_bytes_per_token
from headstart.engine.models.checkpoint.text_config import decoder_spec, rope_sections
from headstart.engine.models.qwen2_5_omni import audio_sizes, vision_sizes
from headstart.engine.models.qwen2_vl import vision_sizes as qwen2_vl_vision
from headstart.engine.models.sizes import QWEN2_VL, config_of


@pytest.mark.parametrize(("size", "kib", "hidden"), [("3b", 36, 2048), ("7b", 56, 3584)])
def test_a_size_has_the_published_cost_of_a_token(size: str, kib: int, hidden: int) -> None:
    """36 and 56 KiB of bf16 K/V a token; both encoders give the decoder's width."""
    config = config_of(size)
    text = config.part("text_config")
    spec = decoder_spec(text)
    per_token = kv_bytes_per_token(spec.layers, spec.kv_heads, spec.head_dim, "bf16")
    assert per_token == kib * 1024
    assert spec.hidden == hidden
    assert spec.qkv_bias
    assert sum(rope_sections(text)) == spec.head_dim // 2
    assert audio_sizes(config.part("audio_config")).output == hidden
    assert vision_sizes(config.part("vision_config")).output == hidden


def test_qwen2_vl_has_the_published_cost_of_a_token() -> None:
    """As Qwen2.5-Omni's 7b, and no audio."""
    config = config_of(QWEN2_VL)
    spec = decoder_spec(config.part("text_config"))
    assert kv_bytes_per_token(spec.layers, spec.kv_heads, spec.head_dim, "bf16") == 56 * 1024
    assert spec.qkv_bias
    assert qwen2_vl_vision(config.part("vision_config")).output == spec.hidden == 3584
    assert "audio_config" not in config


def test_a_size_that_was_not_published_is_refused() -> None:
    """With those that were."""
    with pytest.raises(BadSettings, match="one of 3b, 7b, qwen2-vl-7b, tiny"):
        config_of("13b")
