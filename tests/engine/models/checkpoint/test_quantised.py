"""Checkpoints that were quantised before us are refused by name, with what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from headstart.engine.models.checkpoint.errors import QuantisedWeights
from headstart.engine.models.checkpoint.quantised import ENDINGS, FIELD, SIDECARS
from headstart.engine.models.checkpoint.tensors import RandomTensors
from headstart.engine.models.families import Loading, load
from headstart.engine.models.info import describe
from headstart.engine.process.weights_command import app
from tests.engine.models import twins
from tests.engine.models.omni_twin import tiny_twin, write_directory

ADVICE = r"expected the unquantised checkpoint.*--weights int8"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return twins.save(twins.qwen2(), tmp_path / "tiny")


def say(folder: Path, quantised: dict[str, Any], *inside: str) -> None:
    """Write it into config.json, as a field of the object `inside` of it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    part = config
    for name in inside:
        part = part[name]
    part[FIELD] = quantised
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq of 4 bits"),
        ({"quant_method": "awq", "bits": 4, "zero_point": True}, "awq of 4 bits"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"quant_method": "fp8"}, "fp8"),
        ({}, "an unnamed method"),
    ],
)
def test_config_says_so(folder: Path, said: dict[str, Any], told: str) -> None:
    """By its method and bits, before any tensor is looked for, and with what to do."""
    say(folder, said)
    with pytest.raises(QuantisedWeights, match=rf"config\.json: weights: {ADVICE}.* by {told}"):
        load(folder, Loading())


@pytest.mark.parametrize("inside", [(), ("thinker_config",), ("thinker_config", "text_config")])
def test_a_part_of_the_flagship_says_so(tmp_path: Path, inside: tuple[str, ...]) -> None:
    """Qwen2.5-Omni's config.json nests: wherever it stands."""
    folder = write_directory(tiny_twin(), tmp_path / "omni", "thinker.")
    say(folder, {"quant_method": "gptq", "bits": 4}, *inside)
    with pytest.raises(QuantisedWeights, match="gptq of 4 bits"):
        load(folder, Loading())


@pytest.mark.parametrize(("name", "method"), SIDECARS.items())
def test_a_file_beside_it_says_so(folder: Path, name: str, method: str) -> None:
    """Older tools leave config.json as it was."""
    (folder / name).write_text(json.dumps({"bits": 4}))
    with pytest.raises(QuantisedWeights, match=rf"{name}: weights: .* by {method}"):
        load(folder, Loading())


@pytest.mark.parametrize("ending", ENDINGS)
def test_names_say_so(folder: Path, ending: str) -> None:
    """No file says anything: one tensor's name is enough, and is told."""
    path = folder / "model.safetensors"
    name = f"model.layers.0.mlp.up_proj{ending}"
    save_file({**load_file(path), name: torch.zeros(2, dtype=torch.int32)}, path)
    with pytest.raises(QuantisedWeights, match=rf"model\.safetensors: .*it holds {name}"):
        load(folder, Loading())


def test_the_command_says_so(folder: Path) -> None:
    """`headstart models info` ends with 1 and the sentence; sizes alone are still of use."""
    say(folder, {"quant_method": "awq", "bits": 4})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).touch()
    with pytest.raises(QuantisedWeights):
        describe(folder)
    result = CliRunner().invoke(app, ["info", str(folder)])
    assert result.exit_code == 1
    assert "awq of 4 bits" in result.output.replace("\n", " ")
    random = load(folder, Loading(tensors=lambda *_: RandomTensors(torch.bfloat16)))
    assert random.spec.decoder.hidden == 64
