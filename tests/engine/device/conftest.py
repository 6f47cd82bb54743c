"""Tiny models whose encoders are put on a device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.models import twins
from tests.engine.models.composite_twin import projector_weights, write_composite
from tests.engine.models.omni_twin import tiny_twin, write_directory

SEEING = ("omni", "qwen2_vl", "qwen2_5_vl", "llava_onevision", "pixtral")


@pytest.fixture(scope="package")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A directory for each family of `SEEING`, and for a "composite"; tests only read them."""
    made = {name: tmp_path_factory.mktemp(name) for name in (*SEEING, "composite")}
    write_directory(tiny_twin(), made["omni"])
    for name in SEEING[1:]:
        twins.save(getattr(twins, name)(), made[name])
    write_composite(made["composite"], twins.whisper(), twins.qwen2_vl(), projector_weights())
    return made
