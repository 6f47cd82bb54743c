"""A directory described from its headers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from headstart.engine.errors import UnsupportedModel
from headstart.engine.models.info import describe
from headstart.engine.process.weights_command import app
from tests.engine.models.served import write_served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_served(tmp_path / "omni")
    return tmp_path / "omni"


def test_a_whole_directory_is_told_by_its_sizes(folder: Path) -> None:
    """Family, senses, dtype, every parameter that is used, nothing wrong; and the one tensor that
    its makers store and never read."""
    facts = describe(folder)
    assert facts["family"] == "qwen2_5_omni"
    assert facts["wrong"] == []
    assert facts["unused"] == ["audio.audio_bos_eos_token.weight"]
    assert facts["stored"] == {"float32": facts["parameters"]}
    assert facts["hears"].startswith("units of ")
    assert facts["sees"].startswith("2 frames")
    assert "chat template" in facts["words"]


def test_all_that_is_wrong_is_named_at_once(folder: Path) -> None:
    """A missing tensor, a misshapen one and one that nobody asks for; the command ends with 1."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    gone = next(name for name in tensors if name.endswith("q_proj.weight"))
    bent = next(name for name in tensors if name.endswith("lm_head.weight"))
    del tensors[gone]
    tensors[bent] = torch.zeros(3, 5)
    tensors["thinker.model.odd.weight"] = torch.zeros(1)
    save_file(tensors, path)
    result = CliRunner().invoke(app, ["info", str(folder), "--json"])
    assert result.exit_code == 1
    facts = json.loads(result.stdout)
    assert facts["wrong_count"] == 2
    assert any("q_proj.weight" in line and "missing" in line for line in facts["wrong"])
    assert any("lm_head" in line and "stored as [3, 5]" in line for line in facts["wrong"])
    assert any("odd.weight" in line for line in facts["unused"])


def test_another_family_is_refused(folder: Path) -> None:
    """With those that are known; the command says so without a traceback."""
    (folder / "config.json").write_text(json.dumps({"model_type": "pixtral"}))
    with pytest.raises(UnsupportedModel, match="qwen2_5_omni"):
        describe(folder)
    result = CliRunner().invoke(app, ["info", str(folder)])
    assert result.exit_code == 1
    assert "model_type" in result.output
