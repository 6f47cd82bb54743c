"""Directories that lack something, and what loading one costs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from headstart.engine.errors import BadWeights, UnsupportedModel
from headstart.engine.models.checkpoint.directory import ModelDirectory, read_json
from headstart.engine.models.checkpoint.tensors import RandomTensors, Scope
from headstart.engine.models.checkpoint.text_config import decoder_spec, rope_sections
from headstart.engine.models.families import FAMILIES, Loading, load
from tests.engine.models import twins
from tests.engine.models.sizes import TEXT

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return twins.save(twins.qwen2(), tmp_path / "tiny")


def change(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    state = load_file(folder / "model.safetensors")
    edit(state)
    save_file(state, folder / "model.safetensors")


def test_a_missing_tensor_is_named(folder: Path) -> None:
    """By the name that the model asks for, with the shape that it should have."""
    change(folder, lambda state: state.pop("model.layers.1.mlp.down_proj.weight"))
    with pytest.raises(BadWeights, match=r"layers\.1\.mlp\.down_proj\.weight.*\[64, 96\].*no such"):
        load(folder, Loading())


def test_a_tensor_of_another_shape_is_named(folder: Path) -> None:
    """With both shapes."""
    change(folder, lambda state: state.update({"model.norm.weight": torch.ones(63)}))
    with pytest.raises(BadWeights, match=r"norm\.weight.*\[64\], got \[63\]"):
        load(folder, Loading())


def test_a_missing_file_or_field_is_named(folder: Path, tmp_path: Path) -> None:
    """config.json, a field in it, and the weights."""
    with pytest.raises(BadWeights, match=r"config\.json: file"):
        load(tmp_path, Loading())
    config = json.loads((folder / "config.json").read_text())
    del config["hidden_size"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadWeights, match="field hidden_size"):
        load(folder, Loading())
    (folder / "model.safetensors").unlink()
    with pytest.raises(BadWeights, match=r"model\.safetensors: file"):
        load(folder, Loading())


def test_shards_outside_of_the_directory_are_refused(folder: Path) -> None:
    """An index may not point elsewhere on the disk."""
    index = {"weight_map": {"model.norm.weight": "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(BadWeights, match=r"elsewhere\.safetensors: file"):
        load(folder, Loading())


def test_shards_without_their_index_or_without_one_of_them_are_told(folder: Path) -> None:
    """A download that stopped half way: which file is missing."""
    whole = folder / "model.safetensors"
    whole.rename(folder / "model-00001-of-00002.safetensors")
    with pytest.raises(BadWeights, match=r"index\.json: file: expected a file beside mod"):
        load(folder, Loading())
    files = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    with pytest.raises(BadWeights, match=r"model-00002-of-00002\.safetensors: file"):
        load(folder, Loading())


def test_a_family_we_do_not_know_is_refused(folder: Path) -> None:
    """With the list of those we know."""
    (folder / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(UnsupportedModel, match=f"one of {', '.join(sorted(FAMILIES))}, got mamba"):
        load(folder, Loading())


def test_progress_counts_up_to_the_models_size(folder: Path) -> None:
    """Bytes taken, of the bytes on disk."""
    told: list[tuple[int, int]] = []
    load(folder, Loading(torch.float64, progress=lambda done, total: told.append((done, total))))
    size = (folder / "model.safetensors").stat().st_size
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert 0.9 * size < told[-1][0] <= size == told[-1][1]


def test_what_the_decoder_cannot_compute_is_refused(tmp_path: Path) -> None:
    """Other ropes, windows, activations and interleaved sections."""
    sizes = dict(TEXT)
    refused: list[dict[str, Any]] = [
        {"rope_parameters": {"rope_type": "yarn"}},
        {"use_sliding_window": True},
        {"hidden_act": "gelu"},
    ]
    path = tmp_path / "config.json"
    for bad in refused:
        path.write_text(json.dumps({**sizes, **bad}))
        with pytest.raises(UnsupportedModel):
            decoder_spec(read_json(path))
    path.write_text(json.dumps({"rope_parameters": {"mrope_interleaved": True}}))
    with pytest.raises(UnsupportedModel, match="interleaved"):
        rope_sections(read_json(path))
    path.write_text(json.dumps({**sizes, "rope_scaling": {"type": "mrope"}, "rope_theta": 1e6}))
    assert decoder_spec(read_json(path)).rope_base == 1e6


def test_random_weights_stand_in_for_any(folder: Path) -> None:
    """A model of thin air has the sizes of the real one, and gives finite logits."""
    dummy = RandomTensors(torch.bfloat16)
    model = load(folder, Loading(tensors=lambda *_: dummy))
    assert model.spec.decoder.hidden == 64
    assert (
        dummy.nbytes == sum(t.numel() for t in load_file(folder / "model.safetensors").values()) * 2
    )
    assert Scope(dummy, "x.").has("norm.weight")
    assert model.embed_text([1]).isfinite().all()


_PEAK = """
import ctypes, sys, torch
from pathlib import Path
from headstart.engine.models.decoder.choice import in_int8, in_torch
from headstart.engine.models.families import Loading, load
def kib(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))
form = sys.argv[3]
dtype, build = (torch.bfloat16, in_int8) if form == "int8" else (getattr(torch, form), in_torch)
load(Path(sys.argv[2]), Loading(dtype, build=build))  # libraries' code and pools, at first use
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")  # the peak counts from here: proc(5)
own, resident = kib("RssAnon"), kib("VmRSS")
model = load(Path(sys.argv[1]), Loading(dtype, build=build))
ctypes.CDLL(None).malloc_trim(0)  # what was freed is nobody's
print(kib("RssAnon") - own, kib("VmHWM") - resident)
"""


@pytest.mark.parametrize("form", ["bfloat16", "float32", "int8"])
def test_loading_needs_no_second_copy(tmp_path: Path, folder: Path, form: str) -> None:
    """300 MB of bf16. Kept as stored, they stay on the file's pages: next to no memory of its own.
    Converted to fp32 or int8, resident memory, the file's pages in it, peaks at the converted
    model (twice the size, or 0.53 of it) and less than half of the file beside it."""
    stored_kib = _write_large(tmp_path)
    assert stored_kib > 250_000
    out = subprocess.run(
        [sys.executable, "-c", _PEAK, str(tmp_path), str(folder), form],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    anonymous_kib, peak_kib = (int(number) for number in out.split())
    if form == "bfloat16":
        assert anonymous_kib < 0.05 * stored_kib
    of_stored = {"bfloat16": 1.0, "float32": 2.0, "int8": 0.53}[form]
    assert peak_kib < (of_stored + 0.5) * stored_kib


def _write_large(folder: Path) -> int:
    """A Qwen2 of 300 MB; its size in KiB."""
    sizes = {**TEXT, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8}
    config = {**sizes, "model_type": "qwen2", "vocab_size": 8192, "head_dim": 256}
    (folder / "config.json").write_text(json.dumps(config))
    dummy = Recorder(torch.bfloat16)
    load(folder, Loading(tensors=lambda *_: dummy))
    save_file(dummy.saved, folder / "model.safetensors")
    return (folder / "model.safetensors").stat().st_size // 1024


class Recorder(RandomTensors):
    """Random weights that are kept by the names of a Qwen2 checkpoint."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__(dtype)
        self.saved: dict[str, torch.Tensor] = {}

    def take(self, name: str, *shape: int) -> torch.Tensor:
        tensor = super().take(name, *shape)
        self.saved[name.replace("decoder.", "model.")] = tensor
        return tensor


def test_a_name_stored_twice_is_refused(folder: Path) -> None:
    """Two layouts in one checkpoint: which of them counts is not guessed."""
    directory = ModelDirectory(folder)
    with pytest.raises(BadWeights, match="twice"):
        directory.checkpoint(lambda stored: "one", torch.float32)


def test_random_weights_follow_from_their_names() -> None:
    """So that processes with parts of a model have the same one, whatever each of them reads."""
    one, other = RandomTensors(torch.float32), RandomTensors(torch.float32)
    other.take("before", 3, 5)
    assert torch.equal(one.take("vision.a", 4, 8), other.take("vision.a", 4, 8))
    assert not torch.equal(one.take("vision.b", 4, 8), other.take("vision.a", 4, 8))
