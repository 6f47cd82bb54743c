"""Where speech is recognised, by the settings, and what happens where a GPU cannot."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from headstart.engine.asr.chosen import ChosenRecognizer
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.asr.whisper.checkpoint import load_checkpoint
from headstart.engine.config import HEARD_TOGETHER_ON_CPU, HEARD_TOGETHER_ON_GPU, EngineConfig
from headstart.engine.device import whisper
from headstart.engine.device.choice import CPU, Choice, Found, recognising_device
from headstart.engine.device.place import Place
from headstart.engine.errors import BadSettings, NoDevice
from headstart.engine.process.recognizer import (
    chosen_recognizer,
    heard_together,
    recognition_worker,
)
from headstart.engine.session.recognition import PassSharing
from tests.engine.asr.whisper_dirs import write_whisper

HERE = torch.device("cpu")
ON_GPU = Choice("cuda:1", "H200, as asked")
WHOLE = Found(
    "2.14", True, [("GTX 1080", (6, 1)), ("RTX 2080", (7, 5))], triton=False, compiler=False
)
FULL = "its memory has no room for the speech recogniser"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_whisper(tmp_path / "whisper")
    return tmp_path / "whisper"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The GPUs that a Whisper was put onto: on the CPU, in fact."""
    found: list[str] = []

    def placed_here(device: torch.device) -> Place:
        found.append(str(device))
        return Place(HERE, torch.float32, None)  # type: ignore[arg-type]

    monkeypatch.setattr(Found, "here", lambda: WHOLE)
    monkeypatch.setattr(whisper, "whisper_place", placed_here)
    return found


def chosen(
    folders: Sequence[Path], config: EngineConfig, decoding: Choice = CPU
) -> ChosenRecognizer:
    """As a start does it: the device is known, or refused, before anything is loaded."""
    return chosen_recognizer(folders, config, recognising_device(config, decoding))


def settings(**given: Any) -> EngineConfig:
    return EngineConfig(packed_cache_bytes=0, **given)


def test_it_is_where_the_decoder_is(folder: Path, asked: list[str]) -> None:
    """On the CPU with a decoder there, or an LLM server's; on its GPU otherwise."""
    assert chosen([folder], settings()).device == "cpu"
    assert not asked
    found = chosen([folder], settings(), ON_GPU)
    assert (found.device, asked) == ("cuda:1", ["cuda:1"])
    assert chosen([folder], settings(ears_device="cpu"), ON_GPU).device == "cpu"


def test_a_gpu_of_its_own(folder: Path, asked: list[str]) -> None:
    """Where an LLM server decodes, say. It needs no Triton, no compiler, and no bf16."""
    found = chosen([folder], settings(ears_device="cuda:1"), CPU)
    assert (found.device, found.directory, asked) == ("cuda:1", folder, ["cuda:1"])


@pytest.mark.parametrize(
    ("device", "missing"),
    [
        ("cuda:0", "GTX 1080 has compute capability 6.1; use a GPU of 7.0 or later"),
        ("cuda:2", "the last GPU is cuda:1"),
    ],
)
def test_a_gpu_that_is_asked_for_and_lacks_something(
    folder: Path, asked: list[str], device: str, missing: str
) -> None:
    """Is refused, by name, with what would do."""
    with pytest.raises(NoDevice, match=missing) as caught:
        chosen([folder], settings(ears_device=device))
    assert str(caught.value).endswith("or use --ears-device cpu")
    assert not asked


def test_settings_name_a_device_or_are_refused() -> None:
    """As the decoder's."""
    for good in ("auto", "cpu", "cuda", "cuda:12"):
        EngineConfig(ears_device=good)
    with pytest.raises(BadSettings, match="ears_device must be auto, cpu, cuda"):
        EngineConfig(ears_device="gpu")


@pytest.mark.parametrize("where", ["weights", "first pass"])
def test_a_full_gpu_leaves_it_to_the_cpu(
    folder: Path,
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
) -> None:
    """With a warning, if the setting is "auto"; who asked for that GPU is refused."""

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError

    if where == "weights":
        monkeypatch.setattr(whisper, "placed", full)
    else:  # silence is encoded before there are utterances
        monkeypatch.setattr(whisper.PlacedEncoder, "_fronts", full)
    with caplog.at_level(logging.WARNING):
        found = chosen([folder], settings(), ON_GPU)
    assert found.device == "cpu"
    assert f"ears: cuda:1: {FULL}; the CPU recognises speech instead" in caplog.text
    with pytest.raises(NoDevice, match=FULL) as caught:
        chosen([folder], settings(ears_device="cuda:1"), CPU)
    assert "use a smaller one (--ears), or use --ears-device cpu" in str(caught.value)


def test_of_several_the_largest_that_has_room_and_time(
    folder: Path, tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not fit onto the GPU is passed over, as one that takes too long is."""
    write_whisper(tmp_path / "large")
    placed = whisper.placed

    def some(checkpoint: Any, place: Place) -> Any:
        if len(asked) == 1:
            raise torch.OutOfMemoryError
        return placed(checkpoint, place)

    monkeypatch.setattr(whisper, "placed", some)
    found = chosen([tmp_path / "large", folder], settings(chunk_ms=2000), ON_GPU)
    assert (found.directory, found.device) == (folder, "cuda:1")
    assert "large cannot be used" in found.reason


def test_on_a_gpu_it_runs_beside_the_steps_and_for_several_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the settings say otherwise; on a CPU within them, and for several where many wait."""
    recognizer = WhisperRecognizer.over(load_checkpoint(folder), folder)
    assert recognition_worker(recognizer, settings()) is None
    assert heard_together(recognizer, settings()) == PassSharing(HEARD_TOGETHER_ON_CPU, one_in=4)
    recognizer.is_on_gpu = True
    worker = recognition_worker(recognizer, settings())
    assert worker is not None
    worker.close()
    assert recognition_worker(recognizer, settings(recognition="within")) is None
    assert heard_together(recognizer, settings()) == PassSharing(HEARD_TOGETHER_ON_GPU)
    assert heard_together(recognizer, settings(heard_together=3)) == PassSharing(3)
