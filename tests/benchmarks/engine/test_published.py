"""Directories of random weights in the shape of published models."""

from __future__ import annotations

import copy
import json
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner

from headstart.benchmarks import cli
from headstart.benchmarks.engine import published, random_directory
from headstart.benchmarks.engine.random_directory import (
    CONFIGS,
    INDEX,
    DirectoryFailed,
    describe,
    write,
    write_weights,
)
from headstart.engine.errors import BadSettings
from headstart.engine.models import footprint
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


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards that are complete stay, half of one does not; the end is as without the pause."""
    config = shortened("qwen2.5-vl-3b")
    write(tmp_path / "whole", config, shard_bytes=1 << 16)
    folder = tmp_path / "interrupted"
    saved: list[str] = []

    def third_fails(tensors: Any, path: Path) -> None:
        if len(saved) == 2:
            path.write_bytes(b"half")
            raise KeyboardInterrupt
        saved.append(path.name)
        save_file(tensors, path)

    with monkeypatch.context() as patch:
        patch.setattr(random_directory, "save_file", third_fails)
        with pytest.raises(KeyboardInterrupt):
            write(folder, config, shard_bytes=1 << 16)
    assert not list(folder.glob("*.part"))
    first, second = sorted(folder.glob("*.safetensors"))
    before = first.stat().st_mtime_ns
    second.write_bytes(second.read_bytes()[:-8])  # as after a power failure
    (folder / "model-00003.part").write_bytes(b"half")  # as after SIGKILL
    write(folder, config, shard_bytes=1 << 16)
    assert first.stat().st_mtime_ns == before
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == whole


def test_a_full_disk_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is needed and what is free; shards that are there count."""
    config = shortened("qwen2.5-vl-3b")
    shapes = describe(tmp_path, config)
    Usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(9, 8, 10**9 + 1000))
    with pytest.raises(DirectoryFailed, match=r"needs 0\.0 GB more.*1\.0 GB are free.*--folder"):
        write_weights(tmp_path, shapes, config)
    assert not list(tmp_path.glob("*.safetensors"))
    monkeypatch.undo()
    write_weights(tmp_path, shapes, config)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(9, 9, 0))
    write_weights(tmp_path, shapes, config)


def test_a_disk_that_fills_up_meanwhile_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a sentence that says how to go on; no half of a shard stays."""

    def full(_: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(random_directory, "save_file", full)
    with pytest.raises(DirectoryFailed, match=r"No space left on device.*run the same command"):
        write(tmp_path, shortened("qwen2.5-vl-3b"))
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob("*.safetensors"))


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    """A checkpoint that somebody fetched may stand where ours would be written."""
    (tmp_path / "model.safetensors").write_bytes(b"theirs")
    with pytest.raises(DirectoryFailed, match=r"did not write.*name another --folder"):
        write(tmp_path, shortened("qwen2.5-vl-3b"))
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert (tmp_path / "model.safetensors").read_bytes() == b"theirs"


def test_too_little_memory_is_told_before_weights_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the sizes, as `headstart serve` tells it; the command ends with 1 and that sentence."""
    monkeypatch.setattr(footprint, "available_bytes", lambda: 10_000_000_000)
    monkeypatch.setattr(published, "write_weights", lambda *_: pytest.fail("weights are written"))
    done = CliRunner().invoke(cli.app, ["published", "pixtral-12b", "--folder", str(tmp_path)])
    assert done.exit_code == 1
    assert "pixtral-12b-dummy in " in done.stderr
    assert "10.0 GB are available to this process" in done.stderr


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
    monkeypatch.setattr(published, "describe", lambda *_: pytest.fail("something is written"))
    with pytest.raises(BadSettings, match=r"encoder_weights.*int4"):
        published.run("qwen2.5-vl-3b", tmp_path, "int4", as_json=True)
    assert list(tmp_path.iterdir()) == []
