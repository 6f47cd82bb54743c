"""Where the recogniser runs by itself: beside the steps of a decoder on a GPU, else within."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.config import EngineConfig
from headstart.engine.device.decoder import DeviceDecoder
from headstart.engine.process.recognizer import recognition_worker
from tests.engine.fakes import FakeRecognizer
from tests.engine.harness import load_tiny
from tests.engine.tiny_gguf import QWEN2


def recogniser_on_cpu() -> WhisperRecognizer:
    recogniser = WhisperRecognizer.__new__(WhisperRecognizer)
    recogniser.is_on_gpu = False
    return recogniser


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> DeviceDecoder:
    decoder = load_tiny(tmp_path_factory.mktemp("tiny"), QWEN2, "device").decoder
    assert isinstance(decoder, DeviceDecoder)
    return decoder


@pytest.fixture
def on_gpu(on_cpu: DeviceDecoder) -> DeviceDecoder:
    place = replace(on_cpu.place, device=torch.device("cuda:0"))
    moved = DeviceDecoder.__new__(DeviceDecoder)
    moved.place = place
    return moved


@pytest.mark.parametrize(
    ("setting", "on_a_gpu", "beside"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("beside", False, True),
        ("within", True, False),
    ],
)
def test_by_setting(
    on_cpu: DeviceDecoder, on_gpu: DeviceDecoder, setting: str, on_a_gpu: bool, beside: bool
) -> None:
    """`auto` follows the decoder, and the other two are what they say."""
    whisper = recogniser_on_cpu()
    config = EngineConfig(recognition=setting)
    worker = recognition_worker(whisper, config, on_gpu if on_a_gpu else on_cpu)
    assert (worker is not None) == beside
    if worker is not None:
        worker.close()


def test_auto_is_the_default_and_embeddings_stay_within(on_gpu: DeviceDecoder) -> None:
    """A model's own encoder puts embeddings into its session's stream, which steps read. An LLM
    server is no decoder on a GPU here."""
    assert EngineConfig().recognition == "auto"
    whisper = recogniser_on_cpu()
    assert recognition_worker(FakeRecognizer("a word"), EngineConfig(), on_gpu) is None
    assert recognition_worker(whisper, EngineConfig()) is None
