"""The flagship model's directory: names and settings."""

from __future__ import annotations

from pathlib import Path

import torch

from headstart.engine.models.families import Loading, load
from headstart.engine.models.qwen2_5_omni import Qwen25Omni, our_name
from tests.engine.models.omni_twin import tiny_twin, write_directory


def test_names_of_all_layouts() -> None:
    """Released ("thinker."), saved by the Thinker of older versions, and of today."""
    for prefix in ("thinker.", ""):
        assert our_name(f"{prefix}audio_tower.conv1.weight") == "audio.conv1.weight"
        assert our_name(f"{prefix}visual.merger.ln_q.weight") == "vision.merger.ln_q.weight"
        assert our_name(f"{prefix}model.norm.weight") == "decoder.norm.weight"
        assert our_name(f"{prefix}lm_head.weight") == "lm_head.weight"
        assert our_name(f"{prefix}model.language_model.norm.weight") == "decoder.norm.weight"
        assert our_name(f"{prefix}model.audio_tower.conv1.weight") == "audio.conv1.weight"
        assert our_name(f"{prefix}model.visual.merger.mlp.0.bias") == "vision.merger.mlp.0.bias"
    assert our_name("talker.model.norm.weight") is None
    assert our_name("token2wav.code2wav_dit_model.x") is None


def test_its_family_is_found_by_its_config(tmp_path: Path) -> None:
    """The whole model's config.json and the Thinker's own; what it declares comes from there."""
    theirs = tiny_twin()
    for name, prefix in (("whole", "thinker."), ("thinker", "")):
        folder = write_directory(theirs, tmp_path / name, prefix)
        model = load(folder, Loading(torch.float32))
        assert isinstance(model, Qwen25Omni)
        heard, seen = model.spec.audio, model.spec.vision
        assert heard is not None
        assert seen is not None
        assert (heard.unit_ms, heard.unit_tokens, heard.look_ahead_frames) == (2_000, 50, 0)
        assert (seen.side_px, seen.frames_per_unit, seen.max_pixels) == (28, 2, 64 * 784)
        assert model.spec.decoder.qkv_bias
