"""The engine's settings."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args, get_origin

import pytest

from headstart.engine.api.host import usable_cores
from headstart.engine.config import CHOICES, EngineConfig
from headstart.engine.errors import BadSettings
from headstart.engine.process.assemble import require_no_pooling
from headstart.gateway.settings import Settings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kv_pool_bytes", 0),
        ("block_size", 0),
        ("max_context_tokens", -1),
        ("token_budget", 0),
        ("threads", 0),
        ("prefix_cache_share", 1.1),
        ("encoder_cache_bytes", -1),
        ("encoder_cache_ttl_s", -0.5),
        ("encoder_cache_ttl_s", math.inf),
        ("idle_after_s", math.inf),
        ("idle_after_s", math.nan),
        ("ears_sessions", 0),
        ("chunk_ms", 19),
        ("chunk_ms", 2001),
        ("kv_vision_dtype", "fp16"),
        ("kv_text_kept", 0.2),
        ("kv_text_kept", 1.1),
        ("kv_text_kept", math.nan),
        ("encoder_limit_s", 0.0),
        ("device", "gpu"),
        ("size", "3b"),  # weights are "auto"
        ("frame_tokens", 15),
        ("frame_tokens", 4097),
        ("pooled_frames", 0),
        ("pooled_frames", 2),  # frame_pooling is "auto"
        *((field, "none of them") for field in CHOICES),
    ],
)
def test_a_setting_out_of_range_is_named(field: str, value: Any) -> None:
    """`BadSettings` carries the field and what came."""
    with pytest.raises(BadSettings) as caught:
        EngineConfig(**{field: value})
    assert (caught.value.field, repr(caught.value.got)) == (field, repr(value))


def test_the_gateway_offers_what_the_engine_allows() -> None:
    """A value that the gateway takes for an engine's setting is never refused by the engine."""
    offered = {
        name: get_args(field.annotation)
        for name, field in Settings.model_fields.items()
        if name in CHOICES and get_origin(field.annotation) is Literal
    }
    assert {"kv_dtype", "weights", "tail", "still_detail"} <= offered.keys()
    assert all(set(values) <= set(CHOICES[name]) for name, values in offered.items())


def test_narrow_pictures_stand_beside_words_in_fp32() -> None:
    """Beside another type of words they are refused; "same" goes with every type."""
    assert EngineConfig(kv_vision_dtype="int8").kv_dtype == "fp32"
    assert EngineConfig(kv_dtype="int8").kv_vision_dtype == "same"
    for kv_dtype in ("fp16", "int8", "fp8"):
        with pytest.raises(BadSettings, match="kv_vision_dtype"):
            EngineConfig(kv_dtype=kv_dtype, kv_vision_dtype="int8")


def test_a_packaged_model_has_no_pictures_to_store_narrower() -> None:
    """Its pictures are notes in words: refused by name, like other settings of pictures' tokens."""
    require_no_pooling(EngineConfig())
    with pytest.raises(BadSettings, match="notes on its pictures, which are words"):
        require_no_pooling(EngineConfig(kv_vision_dtype="int8"))


def test_the_defaults_are_in_range_and_use_the_cores_we_have() -> None:
    """A config without arguments is valid."""
    assert EngineConfig().threads == usable_cores()
