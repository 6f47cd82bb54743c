"""The memory that encoding takes, computed without data, beside what it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headstart.engine.config import EngineConfig
from headstart.engine.models import footprint
from headstart.engine.models.checkpoint.errors import NotEnoughMemory
from headstart.engine.models.checkpoint.parts import VISION
from headstart.engine.models.families import Loading, load
from headstart.engine.models.footprint import OVERHEAD_BYTES, SizeCounter, check_fits, picture_bytes
from headstart.engine.models.source import loading_of, source_of
from headstart.engine.models.working_memory import encoding_bytes, peak_bytes
from tests.engine.models import twins
from tests.engine.models.served import write_pixtral, write_served

ROOT = Path(__file__).parents[3]
FAMILIES = ("pixtral", "qwen2_vl", "qwen2_5_vl", "llava_onevision", "omni")

# Resident memory above what it was, at most, while the largest picture of the 3b model is encoded.
_PEAK = """
import re, torch
from pathlib import Path
torch.set_num_threads(1)
from dataclasses import replace
from headstart.engine.config import EngineConfig
from headstart.engine.models.checkpoint.parts import NOT_VISION
from headstart.engine.models.checkpoint.tensors import RandomTensors
from headstart.engine.models.decoder.choice import in_torch
from headstart.engine.models.perception.clips import encode_pictures
from headstart.engine.models.perception.vision_tower import VisionTower
from headstart.engine.models.source import loading_of, source_of
from headstart.engine.models.working_memory import _square

def status(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

config = EngineConfig(weights="dummy", size="3b")
how = replace(loading_of(config), build=in_torch, left_out=NOT_VISION)
model = source_of(config).load(how)
del model.vision.tower._blocks[2:]  # each layer takes what the first one took
encode_pictures(model, [_square(28 * 28 * 4)], live=True)
Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
encode_pictures(model, [_square(model.spec.vision.max_pixels)], live=True)
print((status("VmHWM") - before) * 1024)
"""


def without_data(folder: Path) -> torch.nn.Module:
    how = Loading(torch.float32)
    counter = SizeCounter(torch.float32, int8=False)
    return load(folder, Loading(torch.float32, tensors=lambda *_: counter, build=how.build))  # type: ignore[return-value]


def test_results_count_while_they_are_held() -> None:
    """Not views, and not what was there before; with data and without."""
    for device in ("cpu", "meta"):
        there = torch.empty(1000, 1000, device=device)

        def run(there: torch.Tensor = there) -> None:
            two = there + 1, there[:500].T
            del two
            kept = torch.empty(500, 1000, device=there.device)
            third = kept * 2
            del third

        assert peak_bytes(run) == 4_000_000


def test_it_is_what_encoding_takes() -> None:
    """Of the 3b model's largest frame, in a process of its own: the resident memory that it adds is
    what was computed, allocators and kernels aside."""
    argv = [sys.executable, "-c", _PEAK]
    # Or the C library keeps what was freed, and how much of that is used again is chance.
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(argv, cwd=ROOT, env=env, check=True, capture_output=True, text=True)
    out = done.stdout
    config = EngineConfig(weights="dummy", size="3b")
    source = source_of(config)
    assert source is not None
    computed = picture_bytes(source, loading_of(config))
    assert 100e6 < computed < 400e6
    assert 0.6 * computed < int(out) < 1.5 * computed


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_says_what_it_takes(name: str, tmp_path: Path) -> None:
    """By its own code, run on sizes; more pictures at a time, more memory, for those that stack
    them, and no more than the budget lets them."""
    if name == "omni":
        write_served(tmp_path)
    else:
        twins.save(getattr(twins, name)().float(), tmp_path)
    model = without_data(tmp_path)
    alone, many = encoding_bytes(model), encoding_bytes(model, together=64)  # type: ignore[arg-type]
    assert alone > 0
    assert encoding_bytes(model, 64, budget_tokens=1) == alone  # type: ignore[arg-type]
    assert many >= alone


def test_room_for_it_is_kept_where_pictures_are_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that fits but for its largest picture is refused; with an encoder process, which has
    that part, it is not."""
    write_pixtral(tmp_path)
    source = source_of(EngineConfig(model=str(tmp_path)))
    assert source is not None
    how, elsewhere = Loading(torch.float32), Loading(torch.float32, left_out=VISION)
    needed = picture_bytes(source, how)
    assert needed > 1_000_000
    assert picture_bytes(source, elsewhere) == 0
    weights = check_fits(source, how, 0)
    left = weights + OVERHEAD_BYTES + needed
    monkeypatch.setattr(footprint, "available_bytes", lambda: left)
    check_fits(source, how, 0)
    monkeypatch.setattr(footprint, "available_bytes", lambda: left - 1)
    with pytest.raises(NotEnoughMemory):
        check_fits(source, how, 0)
    check_fits(source, elsewhere, 0)
