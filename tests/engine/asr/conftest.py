"""The packaged Whisper, its twin in transformers, and the bundled clips as 16 kHz samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest
import torch

from headstart.benchmarks.references.transformers_whisper import transformers_whisper
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.asr.tokens import WhisperTokens
from headstart.engine.asr.whisper.checkpoint import Checkpoint, load_checkpoint

CLIPS = Path(__file__).parents[3] / "headstart" / "clips"
Sound = npt.NDArray[np.float32]


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """The machine is shared: measure and run these tests on one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def exact(whisper_dir: Path) -> Checkpoint:
    """The packaged weights, all in fp32."""
    return load_checkpoint(whisper_dir, exact=True)


@pytest.fixture(scope="session")
def packed(whisper_dir: Path) -> Checkpoint:
    """The packaged weights as they are used, in int8."""
    return load_checkpoint(whisper_dir)


@pytest.fixture(scope="session")
def twin(exact: Checkpoint) -> Any:
    """`WhisperForConditionalGeneration` with the tensors of `exact`."""
    return transformers_whisper(exact)


@pytest.fixture(scope="session")
def fp64_twin(twin: Any) -> Any:
    """`twin` in fp64: what both it and we round."""
    return copy.deepcopy(twin).double()


@pytest.fixture(scope="session")
def whisper_tokens(whisper_dir: Path) -> WhisperTokens:
    return WhisperTokens(whisper_dir / "tokenizer.json", multilingual=False)


@pytest.fixture(scope="session")
def recognizer(whisper_dir: Path) -> WhisperRecognizer:
    return WhisperRecognizer.load(whisper_dir)


@pytest.fixture(scope="session")
def clip() -> Callable[[str], Sound]:
    """A bundled clip by file name, fp32 [samples] at 16 kHz mono."""

    def load(name: str) -> Sound:
        resampler = av.AudioResampler(format="flt", layout="mono", rate=16_000)
        with av.open(str(CLIPS / name)) as file:
            frames = [
                piece for frame in file.decode(audio=0) for piece in resampler.resample(frame)
            ]
        frames += resampler.resample(None)
        return np.concatenate([frame.to_ndarray().reshape(-1) for frame in frames])

    return load
