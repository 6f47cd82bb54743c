"""Pictures made ready for an encoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headstart.engine.models.perception.interface import VisionSpec
from headstart.engine.models.perception.pixels import Normalisation, fit, patches, resize, stack

SPEC = VisionSpec(side_px=28, frames_per_unit=2, min_pixels=4 * 784, max_pixels=100 * 784)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((280, 280), (280, 280)),
        ((270, 290), (280, 280)),
        ((720, 1280), (196, 364)),
        ((10, 10), (56, 56)),
        ((20, 400), (28, 392)),
        ((5, 2000), (28, 1988)),
    ],
)
def test_sides_are_whole_cells_within_the_budget(
    size: tuple[int, int], wanted: tuple[int, int]
) -> None:
    """Rounded to cells; too large a picture shrinks and too small a one grows, keeping its form."""
    high, wide = fit(*size, SPEC)
    assert (high, wide) == wanted
    assert (high % 28, wide % 28) == (0, 0)
    assert high * wide <= SPEC.max_pixels


def test_patches_are_cells_of_neighbours() -> None:
    """Each row is one patch of all frames, channel first; four neighbours follow on each other."""
    frames = torch.randn(2, 3, 2 * 28, 3 * 28)
    rows = patches(frames, patch_px=14, merge=2)
    assert rows.shape == (24, 3 * 2 * 14 * 14)
    number = 0
    for cell_row in range(2):
        for cell_column in range(3):
            for y in (2 * cell_row, 2 * cell_row + 1):
                for x in (2 * cell_column, 2 * cell_column + 1):
                    patch = frames[:, :, 14 * y : 14 * y + 14, 14 * x : 14 * x + 14]
                    assert torch.equal(rows[number], patch.transpose(0, 1).flatten())
                    number += 1


def test_a_picture_of_the_right_size_keeps_its_pixels() -> None:
    """No resampling where none is needed; a flat picture stays flat where it is."""
    rgb = np.random.default_rng(0).integers(0, 256, (56, 84, 3), dtype=np.uint8)
    assert torch.equal(resize(rgb, 56, 84), torch.from_numpy(rgb).permute(2, 0, 1).float())
    flat = np.full((50, 90, 3), (10, 200, 30), dtype=np.uint8)
    grown = resize(flat, 84, 140)
    assert torch.equal(grown, torch.tensor([10.0, 200.0, 30.0])[:, None, None].expand(3, 84, 140))


def test_pictures_of_one_stack_have_one_size() -> None:
    """A camera that changes its size in mid-unit is fitted to the unit's first frame."""
    pictures = [np.zeros((100, 60, 3), np.uint8), np.zeros((60, 100, 3), np.uint8)]
    assert stack(pictures, SPEC, Normalisation()).shape == (2, 3, 112, 56)
