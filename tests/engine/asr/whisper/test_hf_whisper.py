"""Hugging Face directories: which directories are Hugging Face's, and what their hints mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headstart.engine.asr.whisper.hf_whisper import hugging_face_source, is_hugging_face
from tests.engine.asr.whisper_dirs import IDS, Kind, write_whisper


@pytest.mark.parametrize("sharded", [False, True])
def test_a_directory_is_told_by_its_weights(tmp_path: Path, sharded: bool) -> None:
    """Whole or in shards."""
    assert not is_hugging_face(tmp_path)
    write_whisper(tmp_path, Kind(sharded=sharded))
    assert is_hugging_face(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1 or not sharded


@pytest.mark.parametrize("multilingual", [False, True])
def test_hints_go_before_size(tmp_path: Path, multilingual: bool) -> None:
    """generation_config.json says whether a model knows languages, whatever its vocabulary."""
    write_whisper(tmp_path, Kind(multilingual=multilingual))
    source = hugging_face_source(tmp_path, json.loads((tmp_path / "config.json").read_text()))
    assert source.extras.multilingual is multilingual
    assert source.extras.suppress_first == (9,)
    for name in ("<|startoftranscript|>", "<|endoftext|>"):
        assert source.extras.ids[name] == IDS[name]


@pytest.mark.parametrize("tied", [False, True])
def test_a_head_only_where_it_is_another_matrix(tmp_path: Path, tied: bool) -> None:
    """A tied one is not loaded twice."""
    write_whisper(tmp_path, Kind(tied=tied))
    source = hugging_face_source(tmp_path, json.loads((tmp_path / "config.json").read_text()))
    assert (source.head is None) is tied
