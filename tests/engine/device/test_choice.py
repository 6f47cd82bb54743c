"""Which device decodes, and what is said where a GPU cannot be used."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headstart.engine.config import EngineConfig
from headstart.engine.device import choice
from headstart.engine.device.choice import Found, choose, device_of, place_of
from headstart.engine.errors import BadSettings, NoDevice

WHOLE = Found("2.14", True, [("H200", (9, 0)), ("RTX 2080", (7, 5))], triton=True, compiler=True)


def test_auto_is_the_cpu_and_says_why() -> None:
    """Where there is a GPU too, until the decoder has been measured on one."""
    assert choose("auto", replace(WHOLE, gpus=[])) == choice.Choice(
        "cpu", "the default (torch finds no GPU)"
    )
    there = choose("auto", WHOLE)
    assert there.name == "cpu"
    assert "H200 is there; --device cuda" in there.reason
    assert choose("cpu", WHOLE).name == "cpu"


def test_a_gpu_that_is_asked_for_is_taken() -> None:
    """By number, 0 if none is given."""
    assert choose("cuda", WHOLE) == choice.Choice("cuda:0", "H200, as asked")
    assert choose("cuda:0", WHOLE).name == "cuda:0"


@pytest.mark.parametrize(
    ("device", "found", "missing", "remedy"),
    [
        ("cuda", replace(WHOLE, built_for_gpu=False), "built without CUDA", "TORCH=cuda"),
        ("cuda", replace(WHOLE, gpus=[]), "torch finds no GPU", "nvidia-smi"),
        ("cuda:4", WHOLE, "the last GPU is cuda:1", "cuda:0 to cuda:1"),
        ("cuda:1", WHOLE, "RTX 2080 has compute capability 7.5", "8.0 or later"),
        ("cuda", replace(WHOLE, triton=False), "Triton is not installed", "pip install triton"),
        ("cuda", replace(WHOLE, compiler=False), "no C compiler", "gcc"),
    ],
)
def test_what_is_missing_is_named(device: str, found: Found, missing: str, remedy: str) -> None:
    """With what to do about it, and that the CPU would do."""
    with pytest.raises(NoDevice) as caught:
        choose(device, found)
    assert missing in str(caught.value)
    assert remedy in str(caught.value)
    assert str(caught.value).endswith("or use --device cpu")


def test_settings_name_a_device_or_are_refused() -> None:
    """GPUs by number."""
    for good in ("auto", "cpu", "cuda", "cuda:12"):
        EngineConfig(device=good)
    for bad in ("gpu", "cuda:", "cuda:x", "CUDA", ""):
        with pytest.raises(BadSettings, match="device must be auto, cpu, cuda"):
            EngineConfig(device=bad)


def test_a_place_is_made_only_where_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU's own decoder has none; a CPU's backend does not go with a GPU's."""
    assert place_of(EngineConfig()) is None
    on_cpu = place_of(EngineConfig(backend="device"))
    assert on_cpu is not None
    assert (on_cpu.device.type, on_cpu.is_gpu) == ("cpu", False)
    monkeypatch.setattr(Found, "here", lambda: WHOLE)
    with pytest.raises(BadSettings, match="backend must be auto with device cuda"):
        place_of(EngineConfig(device="cuda", backend="native"))


@pytest.mark.triton
def test_a_gpu_computes_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """By Triton kernels, which are imported for it."""
    monkeypatch.setattr(Found, "here", lambda: WHOLE)
    on_gpu = place_of(EngineConfig(device="cuda"))
    assert on_gpu is not None
    assert (str(on_gpu.device), on_gpu.dtype) == ("cuda:0", torch.bfloat16)


def test_the_cpu_is_taken_without_a_look_at_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a GPU that does not start is nobody's trouble who did not ask for it."""

    def broken(*_: object) -> bool:
        raise RuntimeError("CUDA-capable device(s) is/are busy or unavailable")

    monkeypatch.setattr(torch.cuda, "is_available", broken)
    for missing in ("get_device_name", "get_device_capability", "device_count"):
        monkeypatch.setattr(torch.cuda, missing, broken)
    assert place_of(EngineConfig(device="auto")) is None
    with pytest.raises(NoDevice, match="torch"):
        place_of(EngineConfig(device="cuda"))
    monkeypatch.setattr(Found, "here", broken)
    assert device_of(EngineConfig(device="cpu")) == choice.Choice("cpu", "as asked")
    assert place_of(EngineConfig(device="cpu")) is None


def test_this_machine_can_be_asked() -> None:
    """Whatever is here, auto decodes on the CPU."""
    found = Found.here()
    assert found.torch == torch.__version__
    assert choose("auto", found).name == "cpu"
