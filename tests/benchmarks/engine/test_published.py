"""Directories of random weights in the shape of published models."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from headstart.benchmarks.engine import published, random_directory
from headstart.benchmarks.engine.random_directory import CONFIGS, INDEX, write
from headstart.engine.errors import BadSettings
from headstart.engine.models.checkpoint.words import words_of

SMALL: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SECTIONS = {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
VISION: dict[str, dict[str, Any]] = {
    "qwen2_5_vl": {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": 64,
        "fullatt_block_indexes": [1],
    },
    "llava": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "head_dim": 16,
    },
}


def shortened(model: str) -> dict[str, Any]:
    """A published config.json with a few narrow layers."""
    config = copy.deepcopy(CONFIGS[model])
    config["vision_config"] |= VISION[config["model_type"]]
    if "text_config" in config:
        config["text_config"] |= {**SMALL, "head_dim": 16}
    else:
        config |= {**SMALL, **SECTIONS}
    return config


@pytest.mark.parametrize("model", CONFIGS)
def test_a_directory_loads_and_answers(model: str, tmp_path: Path) -> None:
    """In several shards with an index, through the same path as a served directory: the picture
    has its tokens, and there are as many tokens of an answer as were asked for."""
    parameters = write(tmp_path, shortened(model), shard_bytes=1 << 20)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 2
    where = json.loads((tmp_path / INDEX).read_text())["weight_map"]
    stored = 0
    for path in files:
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                assert where.pop(name) == path.name
                stored += file.get_tensor(name).numel()
    assert (stored, where) == (parameters, {})
    found = published.answered(tmp_path)
    cells = (published.SIDE_PX // 28) ** 2
    rows = published.SIDE_PX // 16
    assert found["picture_tokens"] in (cells, cells + 2, rows * (rows + 1))
    assert found["prompt_tokens"] > found["picture_tokens"]
    assert found["answer_tokens"] == published.ANSWER_TOKENS
    assert found["ttft_ms"] > 0


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    """25 GB take minutes. Other sizes in the same folder are another model."""
    config = shortened("qwen2.5-vl-3b")
    write(tmp_path, config)
    (file,) = tmp_path.glob("*.safetensors")
    before = file.stat().st_mtime_ns
    write(tmp_path, config)
    assert file.stat().st_mtime_ns == before
    write(tmp_path, {**config, "intermediate_size": 128})
    assert file.stat().st_mtime_ns > before


def test_what_was_left_half_written_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the model that was there before is asked for again; and none of its files stay."""
    config = shortened("qwen2.5-vl-3b")
    write(tmp_path, config, shard_bytes=1 << 16)
    shards = {path.name for path in tmp_path.glob("*.safetensors")}

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(random_directory, "save_file", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path, {**config, "intermediate_size": 128})
    write(tmp_path, config, shard_bytes=1 << 20)
    files = {path.name for path in tmp_path.glob("*.safetensors")}
    assert files == set(json.loads((tmp_path / INDEX).read_text())["weight_map"].values())
    assert len(files) < len(shards)


@pytest.mark.parametrize("model", CONFIGS)
def test_special_tokens_have_their_published_ids(model: str, tmp_path: Path) -> None:
    """Those that config.json names, and every other token can be read."""
    config = shortened(model)
    write(tmp_path, config)
    tokenizer = words_of(tmp_path).tokenizer
    names = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "image_token_index": "[IMG]",
    }
    for key, spelling in names.items():
        if key in config:
            assert tokenizer.encode(spelling, special=True) == [config[key]]
    assert tokenizer.encode("Hi!") != tokenizer.encode("Hi?")


def test_another_model_is_refused(tmp_path: Path) -> None:
    """By name, before anything is written."""
    with pytest.raises(ValueError, match=r"expected one of qwen2\.5-vl-3b.*got qwen3"):
        published.run("qwen3", tmp_path, "auto", as_json=True)
    assert list(tmp_path.iterdir()) == []


def test_another_form_of_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the engine does it, but before 8 GB are written."""
    monkeypatch.setattr(published, "write", lambda *_: pytest.fail("something is written"))
    with pytest.raises(BadSettings, match=r"encoder_weights.*int4"):
        published.run("qwen2.5-vl-3b", tmp_path, "int4", as_json=True)
    assert list(tmp_path.iterdir()) == []
