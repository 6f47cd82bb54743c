"""A decoder whose packed weights come from disk is the same, and no fault of the disk stops it."""

from __future__ import annotations

import errno
import json
import logging
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from headstart.engine.checkpoints.packed_file import PackedWriter
from headstart.engine.config import EngineConfig
from headstart.engine.decoder.adapter import CONFIG, TENSORS
from headstart.engine.errors import BadWeights
from headstart.engine.process import packed_weights
from headstart.engine.process.load import LoadedModel, load_model
from headstart.engine.weights import packed_store
from headstart.engine.weights.packed_store import PackedStore
from headstart.kernels.levels import here
from headstart.kernels.native import find_compiler
from tests.engine.harness import logits_at_once
from tests.engine.process import damage
from tests.engine.tiny_gguf import LLAMA, QWEN2, write_tiny_gguf

TOKENS = [5, 40, 200, 7, 31]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, and no decoder is too small to be kept."""
    monkeypatch.setattr(packed_weights, "LEAST_BYTES", 0)
    monkeypatch.setattr(packed_store, "DISK_RESERVE_BYTES", 0)
    monkeypatch.setenv("HEADSTART_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf", QWEN2)


def load(
    path: Path, adapter: Path | None = None, backend: str = "native", **more: Any
) -> LoadedModel:
    config = EngineConfig(backend=backend, kv_pool_bytes=1 << 20, threads=1, **more)
    return load_model(path, config, adapter=adapter)


def logits(path: Path, adapter: Path | None = None, **more: Any) -> Tensor:
    return logits_at_once(load(path, adapter, **more), TOKENS)


def files(home: Path) -> list[Path]:
    return sorted((home / "packed").glob("*.panels"))


def write_adapter(folder: Path, seed: int) -> Path:
    """A random LoRA of one projection, as PEFT saves it."""
    folder.mkdir()
    (folder / CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8}))
    random = torch.Generator().manual_seed(seed)
    name = "base_model.model.model.layers.1.mlp.down_proj.lora_{}.weight"
    a = torch.randn(4, QWEN2.ffn, generator=random)
    b = torch.randn(QWEN2.hidden, 4, generator=random)
    save_file({name.format("A"): a, name.format("B"): b}, folder / TENSORS)
    return folder


@pytest.mark.parametrize("config", [QWEN2, LLAMA], ids=["qwen2", "llama"])
def test_the_second_start_maps_what_the_first_one_packed(
    tmp_path: Path, home: Path, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bits packed in memory, from the file just written, and from the file alone."""
    path = write_tiny_gguf(tmp_path / "x.gguf", config)
    wanted = logits(path, packed_cache_bytes=0)
    assert not home.exists()
    assert torch.equal(logits(path), wanted)
    (made,) = files(home)
    before = made.stat()
    monkeypatch.setattr("headstart.engine.decoder.weights.pack", None)  # nothing is packed now
    again = load(path)
    assert torch.equal(logits_at_once(again, TOKENS), wanted)
    assert made.stat().st_ino == before.st_ino
    monkeypatch.undo()


def test_an_adapter_has_a_file_of_its_own(tmp_path: Path, gguf: Path, home: Path) -> None:
    """With it, without it, with another one in the same folder: never another's weights."""
    folder = write_adapter(tmp_path / "lora", 1)
    wanted = {
        "plain": logits(gguf, packed_cache_bytes=0),
        "first": logits(gguf, folder, packed_cache_bytes=0),
    }
    assert not torch.equal(wanted["plain"], wanted["first"])
    for _ in range(2):
        assert torch.equal(logits(gguf), wanted["plain"])
        assert torch.equal(logits(gguf, folder), wanted["first"])
    assert len(files(home)) == 2
    other = write_adapter(tmp_path / "other", 2)
    for name in (CONFIG, TENSORS):
        (other / name).replace(folder / name)
    second = logits(gguf, folder, packed_cache_bytes=0)
    assert not torch.equal(second, wanted["first"])
    assert torch.equal(logits(gguf, folder), second)


def test_other_weights_in_the_same_place_are_packed_anew(tmp_path: Path, gguf: Path) -> None:
    """Of the same size and date, as a careless copy leaves them."""
    before = logits(gguf)
    date = gguf.stat()
    other = write_tiny_gguf(tmp_path / "other.gguf", QWEN2.__class__(seed=7))
    assert other.stat().st_size == date.st_size
    other.replace(gguf)
    os.utime(gguf, ns=(date.st_atime_ns, date.st_mtime_ns))
    after = logits(gguf)
    assert not torch.equal(after, before)
    assert torch.equal(after, logits(gguf, packed_cache_bytes=0))


def test_a_disk_that_does_not_give_back_what_was_written(
    gguf: Path, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The weights are packed in memory: the start goes on, with the right bits."""
    wanted = logits(gguf)
    for path in files(home):
        path.unlink()
    finish = PackedStore.finish

    def lose(store: PackedStore, draft: Path, path: Path) -> None:
        finish(store, draft, path)
        damage.flip(path)

    monkeypatch.setattr(PackedStore, "finish", lose)
    with caplog.at_level(logging.WARNING):
        assert torch.equal(logits(gguf), wanted)
    assert "packed weights cannot be used" in caplog.text


@pytest.mark.parametrize("spoil", damage.DAMAGES)
def test_a_damaged_file_is_made_again(
    gguf: Path, home: Path, spoil: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """It says so, gives the right bits, and the next start is a fast one again."""
    wanted = logits(gguf)
    (made,) = files(home)
    spoil(made)
    with caplog.at_level(logging.WARNING):
        assert torch.equal(logits(gguf), wanted)
    assert "packed weights cannot be used" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert torch.equal(logits(gguf), wanted)
    assert caplog.text == ""


def test_a_home_that_is_no_folder_costs_time_only(
    gguf: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a read-only one: a file is where the folder should be. (Root may write to any folder, so
    permissions prove nothing here.)"""
    home.write_text("not a folder")
    with caplog.at_level(logging.WARNING):
        assert torch.equal(logits(gguf), logits(gguf, packed_cache_bytes=0))
    assert "weights are packed anew at each start" in caplog.text


def test_a_disk_that_fills_up_midway_costs_time_only(
    gguf: Path, home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is left on it, and the model runs."""
    real = PackedWriter.add

    def add(self: PackedWriter, name: str, weight: Any) -> None:
        if name == "blk.1.ffn_down.weight":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, name, weight)

    monkeypatch.setattr(PackedWriter, "add", add)
    with caplog.at_level(logging.WARNING):
        assert torch.equal(logits(gguf), logits(gguf, packed_cache_bytes=0))
    assert "No space left on device" in caplog.text
    assert [path.name for path in (home / "packed").iterdir()] == [".lock"]


def test_a_small_bound_costs_time_only(gguf: Path, home: Path) -> None:
    """A decoder larger than the folder may be is packed in memory."""
    assert torch.equal(logits(gguf, packed_cache_bytes=1000), logits(gguf, packed_cache_bytes=0))
    assert files(home) == []


def test_wrong_weights_leave_nothing(tmp_path: Path, home: Path) -> None:
    """What is wrong with the GGUF file is still said, by its name."""
    path = write_tiny_gguf(tmp_path / "x.gguf", QWEN2)
    whole = bytearray(path.read_bytes())
    at = whole.index(b"blk.2.ffn_up.weight")
    whole[at : at + 3] = b"bad"
    path.write_bytes(whole)
    with pytest.raises(BadWeights, match=r"tensor blk\.2\.ffn_up\.weight: .* no such tensor"):
        load(path)
    assert files(home) == []


def _start(path: Path, results: Queue[list[float]]) -> None:
    packed_weights.LEAST_BYTES = 0
    packed_store.DISK_RESERVE_BYTES = 0
    results.put(logits(path, backend="auto").tolist())


def started(path: Path, count: int = 1) -> list[list[float]]:
    """Logits of so many processes that load it at once."""
    spawn = multiprocessing.get_context("spawn")
    results: Queue[list[float]] = spawn.Queue()
    starts = [spawn.Process(target=_start, args=(path, results)) for _ in range(count)]
    for start in starts:
        start.start()
    found = [results.get(timeout=240) for _ in starts]
    for start in starts:
        start.join()
    return found


def test_every_level_maps_the_same_file(
    gguf: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Panels do not depend on the kernels' instructions, so one file serves all."""
    wanted = logits(gguf).tolist()
    (made,) = files(home)
    before = made.stat().st_ino
    for level in (here(find_compiler())[0], "scalar"):
        monkeypatch.setenv("HEADSTART_KERNELS", level)
        assert started(gguf) == [wanted], level
    assert [path.stat().st_ino for path in files(home)] == [before]


def test_the_reference_keeps_floats_and_no_file(gguf: Path, home: Path) -> None:
    """It has no packed weights to keep."""
    load(gguf, backend="reference")
    assert files(home) == []


def test_engines_that_start_at_once_write_one_file(gguf: Path, home: Path) -> None:
    """All have the same weights."""
    found = started(gguf, 3)
    assert found == [logits(gguf).tolist()] * 3
    assert len(files(home)) == 1
