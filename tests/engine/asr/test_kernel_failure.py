"""A kernel that fails within a pass of the recogniser, and one that cannot be had at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.errors import KernelFailed
from headstart.kernels.errors import KernelMemoryError
from tests.engine.asr.whisper_dirs import write_whisper


def test_a_kernel_without_memory_is_an_error_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what the memory was for; the sound is kept, and heard by the next pass."""
    write_whisper(tmp_path)
    recognizer = WhisperRecognizer.load(tmp_path)
    noise = np.random.default_rng(0).normal(0, 0.1, 5 * 16_000).astype(np.float32)
    wanted = recognizer.finish(recognizer.open(), noise)
    utterance = recognizer.open()
    with monkeypatch.context() as patch:

        def full(*_: Any) -> None:
            raise KernelMemoryError("the activations of the layers")

        patch.setattr(recognizer._encoder, "_fronts", full)
        with pytest.raises(KernelFailed, match="out of memory for the activations of the layers"):
            recognizer.recognize(utterance, noise[:64_000])
        with pytest.raises(KernelFailed, match="kv_pool_mib"):
            recognizer.finish(utterance, noise[64_000:])
    final = recognizer.finish(utterance)
    assert (final.committed, final.likely) == (wanted.committed, wanted.likely)


def test_kernels_that_cannot_be_had_end_the_engine_with_a_sentence(tmp_path: Path) -> None:
    """As a setting that is out of range, without a traceback."""
    options = ("--weights", "dummy", "--size", "tiny", "--endpoint", f"ipc://{tmp_path}/gateway")
    done = subprocess.run(
        [sys.executable, "-m", "headstart.engine", *options],
        env=os.environ | {"HEADSTART_KERNELS": "fastest"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "HEADSTART_KERNELS is 'fastest': expected one of native" in done.stderr
    assert "Traceback" not in done.stderr
