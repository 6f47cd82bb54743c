"""What is heard does not depend on the processor: the same bits, the same words.

The variables below make torch, its libraries and our kernels take the instructions of other
processors. They are read when a process starts, so each setting is tried in one of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.kernels import levels, native

pytestmark = [pytest.mark.weights, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[3]
COMPILER = native.find_compiler()
# Our kernels as on a processor with AVX2 and no more, where this one has that.
OURS_AVX2 = {"HEADSTART_KERNELS": "avx2"} if "avx2" in levels.here(COMPILER) else {}
NO_AVX512 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", **OURS_AVX2}
NO_AVX = {"ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}
SETTINGS = {
    "as it is": {},
    "oneDNN without AVX-512": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "torch without AVX": {"ATEN_CPU_CAPABILITY": "default"},
    "all without AVX-512, our kernels too": NO_AVX512,
    "all without AVX, our kernels too": {**NO_AVX, "HEADSTART_KERNELS": "scalar"},
}
# Tests that compare with other implementations, which change with the setting too, and of words.
# Not all of the listener's: the portable kernels take a second for half a second of sound.
HEARING = (
    "tests/engine/asr/whisper/test_encoder.py",
    "tests/engine/asr/whisper/test_decoder.py",
    "tests/engine/asr/test_decoding.py",
    "tests/engine/asr/test_mel.py",
    "tests/engine/asr/whisper/test_packed_layers.py",
    "tests/engine/asr/test_recognizer.py::test_words_show_while_spoken",
    "tests/engine/asr/test_recognizer.py::test_hearing_together_is_hearing_alone",
)
PLAIN_TORCH = "plain torch in place of our kernels"
TIMEOUT_S = 570  # hangs end; the portable kernels are slow, more so on a busy machine


def run(setting: dict[str, str], *command: str) -> str:
    """Standard output of a Python process under the setting, and under no other."""
    names = {name for others in SETTINGS.values() for name in others}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=kept | setting,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def heard(setting: dict[str, str]) -> Any:
    return json.loads(run(setting, "-m", "tests.engine.asr.heard_bits"))


@pytest.fixture(scope="module")
def here() -> Any:
    return heard({})


@pytest.mark.parametrize("setting", [name for name in SETTINGS if SETTINGS[name]])
def test_the_bits_and_the_words_are_the_same(here: Any, setting: str) -> None:
    """Of every stage from samples to logits, and of the words and their probabilities after each
    chunk, at three chunk sizes."""
    there = heard(SETTINGS[setting])
    assert there["stages"] == here["stages"]
    assert there["words"] == here["words"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("capital.wav", "What is the capital of France?"),
        ("followup.wav", "And which river runs through it?"),
    ],
)
def test_a_step_of_the_samples_turns_no_word(
    recognizer: WhisperRecognizer,
    clip: Callable[[str], npt.NDArray[np.float32]],
    name: str,
    words: str,
) -> None:
    """The clips that tests assert words of are resampled by FFmpeg, which may round otherwise on
    another processor: those words have a margin of a step of sixteen bits, either way, anywhere."""
    sound, random = clip(name), np.random.default_rng(0)
    for _ in range(2):
        steps = random.integers(-1, 2, len(sound)).astype(np.float32) * np.float32(2**-15)
        utterance = recognizer.open()
        for start in range(0, len(sound), 8000):
            recognizer.recognize(utterance, (sound + steps)[start : start + 8000])
        assert recognizer.finish(utterance).committed == words


def test_the_bits_are_those_of_other_machines(here: Any) -> None:
    """Digests written down once: whatever computes this, they come out. They change when an
    operation does, on purpose: then `python -m tests.engine.asr.heard_bits` says the new ones."""
    written = json.loads(Path(__file__).with_name("heard_bits.json").read_text())
    assert here["stages"] == written


@pytest.mark.parametrize("setting", [*(name for name in SETTINGS if SETTINGS[name]), PLAIN_TORCH])
def test_hearing_holds(setting: str) -> None:
    """The hearing tests themselves, under each setting that changes something: as it is, they run
    by themselves."""
    chosen = {"HEADSTART_KERNELS": "reference"} if setting == PLAIN_TORCH else SETTINGS[setting]
    run(chosen, "-m", "pytest", "-x", "-p", "no:cacheprovider", *HEARING)
