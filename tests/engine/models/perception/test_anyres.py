"""Stills in tiles: the same ones, and as many tokens, as `transformers` makes."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from headstart.engine.errors import BadWeights, UnsupportedModel
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.perception.anyres import Anyres

TILE_PX = 70
CONFIG = Config(Path("config.json"), {})
PUBLISHED = Anyres.of(CONFIG, 384, 27)
SMALL = Anyres.of(CONFIG, TILE_PX, 5)
FORMS = [(70, 70), (90, 120), (64, 200), (200, 60), (333, 500), (12, 150), (7, 41), (420, 420)]
_utils: Any = importlib.import_module("transformers.image_processing_utils")
_theirs: Any = importlib.import_module(
    "transformers.models.llava_onevision.image_processing_pil_llava_onevision"
)


@pytest.mark.parametrize("anyres", [PUBLISHED, SMALL], ids=["384", "70"])
def test_the_canvas_is_theirs(anyres: Anyres) -> None:
    """For a thousand random sizes."""
    rng = np.random.default_rng(0)
    for height, width in rng.integers(2, 3000, (1000, 2)).tolist():
        canvases = [list(canvas) for canvas in anyres.canvases]
        wanted = _utils.select_best_resolution((height, width), canvases)
        assert anyres.canvas((height, width)) == tuple(wanted)


@pytest.mark.parametrize("size", FORMS)
def test_tiles_are_theirs(size: tuple[int, int]) -> None:
    """Of a smooth picture: the same tiles in the same order, margins and all; Pillow's own bicubic
    differs from torch's by a level or two of 256."""
    rows, columns = np.mgrid[0 : size[0], 0 : size[1]]
    waves = [np.sin(rows / 9 + i) * np.cos(columns / 11 - i) for i in range(3)]
    rgb = (np.stack(waves, axis=-1) * 100 + 128).astype(np.uint8)
    processor = _theirs.LlavaOnevisionImageProcessorPil(
        image_grid_pinpoints=[list(canvas) for canvas in SMALL.canvases],
        size={"height": TILE_PX, "width": TILE_PX},
    )
    wanted = processor(images=[rgb], do_normalize=False, return_tensors="pt").pixel_values[0]
    tiles = SMALL.cut(rgb)
    assert tiles.shape == wanted.shape
    assert (tiles - wanted * 255).abs().max() <= 2


def test_pictures_cost_what_their_processor_counts() -> None:
    """Tokens of two hundred random sizes, as the text side of their processor has them."""
    published = importlib.import_module("transformers").LlavaOnevisionProcessor
    canvases = [list(canvas) for canvas in PUBLISHED.canvases]
    known = SimpleNamespace(
        image_processor=SimpleNamespace(image_grid_pinpoints=canvases),
        num_image_tokens=729,
        vision_aspect_ratio="anyres_max_9",
    )
    known._get_unpadded_features = partial(published._get_unpadded_features, known)
    rng = np.random.default_rng(1)
    for height, width in rng.integers(50, 3000, (200, 2)).tolist():
        wanted = published._get_number_of_features(known, height, width, 384, 384)
        assert _tokens(height, width) == wanted


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((384, 384), 729 + 27 * 28),
        ((480, 640), 729 + 40 * 55),  # four tiles, the margins of 54 rows cut off
        ((1080, 1920), 729 + 60 * 109),  # fifteen tiles are thinned out to nine
    ],
)
def test_what_photos_cost(size: tuple[int, int], tokens: int) -> None:
    """With the published sizes."""
    assert _tokens(*size) == tokens


def _tokens(height: int, width: int) -> int:
    high, wide = PUBLISHED.canvas((height, width))
    features = torch.zeros(1 + high * wide // 384**2, 27**2, 1)
    return len(PUBLISHED.join(features, (height, width), torch.ones(1, 1)))


def test_rows_end_in_newlines() -> None:
    """The whole picture has none; behind it every row of the tiles does."""
    features = torch.zeros(1 + 2, 25, 4)
    joined = SMALL.join(features, (70, 140), torch.ones(1, 4))
    ends = torch.arange(25 + 10, 25 + 5 * 11, 11)
    assert joined[ends].eq(1).all()
    assert joined.sum() == 4 * len(ends)


def test_other_ways_are_refused() -> None:
    """Canvases that are no whole tiles, and aspect rules that nobody published."""
    for bad in ([[70, 71]], [[70]], [[0, 70]], ["70x70"]):
        with pytest.raises(BadWeights, match="pairs of multiples of 70"):
            Anyres.of(Config(Path("c"), {"image_grid_pinpoints": bad}), 70, 5)
    with pytest.raises(UnsupportedModel, match="anyres_max_<tiles>"):
        Anyres.of(Config(Path("c"), {"vision_aspect_ratio": "square"}), 70, 5)
