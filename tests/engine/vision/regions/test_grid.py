"""Regions of a picture."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.vision.regions.grid import MOST_A_SIDE, Box, Grid

SIDES = st.integers(1, 5000)


@given(height=SIDES, width=SIDES, cell_pixels=st.sampled_from([1, 256, 784]))
def test_every_pixel_is_in_a_region(height: int, width: int, cell_pixels: int) -> None:
    """Of any shape; no region reaches outside, and each has its own pixels."""
    grid = Grid.of(height, width, cell_pixels)
    assert 1 <= len(grid) <= MOST_A_SIDE**2
    rows, columns = np.zeros(height, bool), np.zeros(width, bool)
    for number in range(len(grid)):
        box = grid.box(number)
        assert 0 <= box.left < box.right <= width
        assert 0 <= box.top < box.bottom <= height
        rows[box.top : box.bottom] = columns[box.left : box.right] = True
    assert rows.all()
    assert columns.all()
    assert len({grid.box(number) for number in range(len(grid))}) == len(grid) or min(
        height, width
    ) <= len(grid)


def test_regions_are_numbered_row_by_row_and_overlap() -> None:
    """Of 28 x 28 pixels a token, 900 x 1350 are two rows of three."""
    grid = Grid.of(900, 1350, 28 * 28)
    assert (grid.rows, grid.columns) == (2, 3)
    assert grid.box(0) == Box(0, 0, 507, 507)  # an eighth of 450 more on the inner sides
    assert grid.box(4) == Box(393, 393, 957, 900)
    assert grid.box(4, margin=0) == Box(450, 450, 900, 900)
    assert grid.centre(4) == (0.5, 0.75)


def test_a_small_picture_is_one_region() -> None:
    """There is nothing to choose from."""
    grid = Grid.of(480, 640, 28 * 28)
    assert len(grid) == 1
    assert grid.box(0) == Box(0, 0, 640, 480)


def test_what_part_of_something_lies_in_a_region() -> None:
    """Also of something without an area."""
    box = Box(10, 10, 20, 20)
    assert box.shared(np.array([[15, 10], [25, 10], [25, 20], [15, 20]])) == 0.5
    assert box.shared(np.array([[30.0, 30], [40, 40]])) == 0.0
    assert box.shared(np.array([[0, 15], [40, 15]])) == 0.0
