"""What is found in the regions of a picture."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.regions.findings import Findings, RegionFinder, changes
from headstart.engine.vision.regions.grid import Grid
from tests.engine.vision.regions.conftest import (
    CAT,
    CELL_PIXELS,
    CUP,
    FACE,
    SIGN,
    SMALL_SIGN,
)


def grid_of(rgb: Rgb) -> Grid:
    return Grid.of(rgb.shape[0], rgb.shape[1], CELL_PIXELS)


def test_writing_lies_in_its_regions(finder: RegionFinder, scene: Rgb) -> None:
    """With the height of its letters, and what it says."""
    found = Findings(grid_of(scene))
    writing = finder.writing(scene, found)
    assert {number: one.text for number, one in writing.items()} == {
        SIGN: "platform 4 to oxford",
        SMALL_SIGN: "espresso 2.40",
    }
    assert writing[SIGN].least_px > writing[SMALL_SIGN].least_px > 20


def test_faces_and_things_lie_in_their_regions(finder: RegionFinder, scene: Rgb) -> None:
    """A region is named by itself: the whole picture would have one name."""
    found = Findings(grid_of(scene))
    assert finder.people(scene, found) == {FACE: 1}
    things = finder.things(scene, found)
    assert things[CAT]["cat"] > 0.5
    assert "espresso" in things[CUP]


def test_each_kind_is_looked_for_once(finder: RegionFinder, scene: Rgb) -> None:
    """Later questions get what was found: of another picture nothing is noticed."""
    found = Findings(grid_of(scene))
    first = finder.writing(scene, found), finder.people(scene, found)
    blank = np.zeros_like(scene)
    assert (finder.writing(blank, found), finder.people(blank, found)) == first


def test_without_detectors_nothing_is_found(scene: Rgb) -> None:
    """And nothing fails."""
    found, finder = Findings(grid_of(scene)), RegionFinder()
    assert finder.writing(scene, found) == {}
    assert finder.people(scene, found) == {}
    assert finder.things(scene, found) == {}


@pytest.mark.parametrize("shape", [(1, 3000, 3), (3000, 1, 3), (1, 1, 3)])
def test_odd_shapes_are_searched(finder: RegionFinder, shape: tuple[int, int, int]) -> None:
    """Lines of pixels show nothing."""
    rgb = np.full(shape, 90, np.uint8)
    found = Findings(grid_of(rgb))
    assert finder.writing(rgb, found) == {}
    assert finder.people(rgb, found) == {}
    assert not any(finder.things(rgb, found).values())


def test_changes_are_known_by_region(scene: Rgb) -> None:
    """Against a picture of the same size only."""
    grid = grid_of(scene)
    now = scene.copy()
    now[550:700, 1000:1300] = 0
    changed = changes(now, scene, grid)
    assert max(changed, key=lambda number: changed[number]) == CUP
    assert changed[CUP] > 0.02
    assert [n for n, size in changed.items() if size] == [CUP]
    assert changes(now, None, grid) == changes(now, scene[:-1], grid) == {}
