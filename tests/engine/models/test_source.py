"""Which model the settings name, and what a directory must hold."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headstart.engine.config import EngineConfig
from headstart.engine.errors import BadSettings, BadWeights
from headstart.engine.models.qwen2_5_omni import Qwen25Omni
from headstart.engine.models.source import checked, loading_of, source_of
from tests.engine.models.served import served_twin, write_served


def test_packaged_models_have_no_source() -> None:
    """Names are not directories."""
    assert source_of(EngineConfig(model="small")) is None


def test_a_directory_without_weights_gives_its_sizes(tmp_path: Path) -> None:
    """`dummy` needs config.json and the words only, and builds the same modules with random
    weights; without `dummy` the missing files are named."""
    write_served(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(BadWeights, match=r"model directory: expected .*, got no \.safetensors"):
        source_of(EngineConfig(model=str(tmp_path)))
    source = source_of(EngineConfig(model=str(tmp_path), weights="dummy"))
    assert source is not None
    how = loading_of(EngineConfig(weights="bf16"))
    model = source.load(how)
    assert isinstance(model, Qwen25Omni)
    assert model.spec.decoder.hidden == served_twin().config.text_config.hidden_size
    assert source.words().tokenizer.encode("hi")


def test_a_wrong_directory_is_told_what_belongs_there(tmp_path: Path) -> None:
    """None at all, an empty one, and one with other files."""
    with pytest.raises(BadWeights, match=r"expected config\.json, .*, got no such directory"):
        source_of(EngineConfig(model=str(tmp_path / "nowhere")))
    with pytest.raises(BadWeights, match="got an empty folder"):
        checked(tmp_path)
    for i in range(7):
        (tmp_path / f"{i}.gguf").touch()
    with pytest.raises(BadWeights, match=r"0\.gguf, .*4\.gguf and 2 more"):
        checked(tmp_path)


def test_sizes_are_the_flagships_and_random() -> None:
    """A size needs `dummy`, `dummy` a size or a directory, and sizes are published ones."""
    with pytest.raises(BadSettings, match="with weights 'dummy' only"):
        EngineConfig(size="3b")
    with pytest.raises(BadSettings, match=r"one of 3b, 7b, .*, or a model directory"):
        source_of(EngineConfig(weights="dummy"))
    with pytest.raises(BadSettings, match="one of 3b, 7b"):
        source_of(EngineConfig(weights="dummy", size="13b"))
    source = source_of(EngineConfig(weights="dummy", size="7b"))
    assert source is not None
    assert source.name == "qwen2_5_omni-7b-dummy"


@pytest.mark.parametrize(("weights", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_weights_are_kept_as_wanted(weights: str, dtype: torch.dtype) -> None:
    """In the dtype that was asked for."""
    assert loading_of(EngineConfig(weights=weights)).dtype == dtype
