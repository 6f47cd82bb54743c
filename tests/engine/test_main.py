"""The engine process's options."""

from __future__ import annotations

from headstart.engine.config import EngineConfig
from headstart.engine.process.options import engine_config, parse_options


def config(*options: str) -> EngineConfig:
    return engine_config(parse_options("", ["--endpoint", "ipc://x", *options]))


def test_the_encoder_cache_has_a_size_and_a_time() -> None:
    """As the configuration has them, or as told; 0 MiB is a size."""
    assert config().encoder_cache_bytes == EngineConfig().encoder_cache_bytes
    assert config().encoder_cache_ttl_s == EngineConfig().encoder_cache_ttl_s
    told = config("--encoder-cache-mib", "64", "--encoder-cache-ttl-s", "90.5")
    assert (told.encoder_cache_bytes, told.encoder_cache_ttl_s) == (64 << 20, 90.5)
    assert config("--encoder-cache-mib", "0").encoder_cache_bytes == 0


def test_pictures_encoders_and_steps_have_their_options() -> None:
    """Those that docs/capabilities.md names."""
    told = config(
        *("--token-budget", "32", "--step-target-ms", "50", "--encoder-budget-tokens", "512"),
        *("--encoded-together", "4", "--encoder-target-ms", "300", "--encoder-weights", "int8"),
        *("--still-detail", "asked", "--frame-pooling", "merge", "--frame-tokens", "32"),
        *("--pooled-frames", "4", "--kv-vision-dtype", "int8", "--kv-text-kept", "0.7"),
    )
    assert (told.token_budget, told.step_target_ms, told.encoder_budget_tokens) == (32, 50, 512)
    assert (told.encoded_together, told.encoder_target_ms, told.encoder_weights) == (4, 300, "int8")
    assert (told.still_detail, told.frame_pooling, told.frame_tokens) == ("asked", "merge", 32)
    assert (told.pooled_frames, told.kv_vision_dtype, told.kv_text_kept) == (4, "int8", 0.7)
