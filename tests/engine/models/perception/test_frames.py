"""Frames in pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headstart.engine.models.checkpoint.directory import read_json
from headstart.engine.models.perception.frames import (
    MAX_PIXELS,
    MIN_PIXELS,
    FrameState,
    QwenVision,
    vision_spec,
)
from headstart.engine.models.perception.interface import VideoFrame
from headstart.engine.models.qwen2_5_omni import Qwen25Omni
from tests.engine.models.loading import loaded
from tests.engine.models.omni_twin import tiny_twin, write_directory


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> QwenVision:
    folder = write_directory(tiny_twin(), tmp_path_factory.mktemp("omni"))
    return loaded(Qwen25Omni, folder, torch.float32).vision


def frames(count: int) -> list[VideoFrame]:
    rng = np.random.default_rng(0)
    return [
        VideoFrame(rng.integers(0, 256, (56, 56, 3), dtype=np.uint8), i / 2) for i in range(count)
    ]


def test_a_frame_waits_for_its_partner(eyes: QwenVision) -> None:
    """One by one or all at once: the same units, at their first frame's time."""
    taken = frames(5)
    with torch.inference_mode():
        at_once, rest = eyes.encode(taken, FrameState(), final=False)
        one_by_one, state = [], FrameState()
        for frame in taken:
            units, state = eyes.encode([frame], state, final=False)
            one_by_one += units
    assert [unit.time_s for unit in at_once] == [unit.time_s for unit in one_by_one] == [0, 1]
    for ours, other in zip(at_once, one_by_one, strict=True):
        assert torch.equal(ours.features, other.features)
    assert state == rest
    assert state.waiting == (taken[4],)


def test_at_the_end_a_frame_alone_is_shown_twice(eyes: QwenVision) -> None:
    """As with a picture by itself."""
    (only,) = frames(1)
    with torch.inference_mode():
        (alone,), state = eyes.encode([only], FrameState(), final=True)
        (doubled,), _ = eyes.encode([only, only], FrameState(), final=False)
    assert torch.equal(alone.features, doubled.features)
    assert (alone.rows, alone.columns, state) == (2, 2, FrameState())


def test_the_models_own_pixel_budget_counts(eyes: QwenVision, tmp_path: Path) -> None:
    """From preprocessor_config.json; without one, 128 to 768 tokens."""
    path = tmp_path / "preprocessor_config.json"
    path.write_text('{"min_pixels": 3136}')
    sizes = eyes.tower.sizes
    own, default = vision_spec(sizes, read_json(path)), vision_spec(sizes, None)
    assert (own.min_pixels, own.max_pixels) == (3136, MAX_PIXELS)
    assert (default.min_pixels, default.max_pixels) == (MIN_PIXELS, MAX_PIXELS)
