"""A picture made of photographs and a sign, and everything that looks at it."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from headstart.engine.process.stills import EYES, FACES, NAMES, READING, region_finder
from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.regions.findings import RegionFinder
from tests.engine.vision.reading.drawn import page

CELL_PIXELS = 28 * 28
CAT, FACE, SIGN, SMALL_SIGN, CUP = 0, 2, 3, 4, 5  # regions; the other one is empty


@pytest.fixture(scope="session")
def finder(
    reading_path: Path, faces_path: Path, efficientnet_path: Path, imagenet_names_path: Path
) -> RegionFinder:
    paths = (reading_path, faces_path, efficientnet_path, imagenet_names_path)
    return region_finder(dict(zip((READING, FACES, EYES, NAMES), paths, strict=True)))


@pytest.fixture(scope="session")
def scene(cat: Rgb, coffee: Rgb, astronaut: Rgb) -> Rgb:
    """Two rows of three regions: a cat, nothing, a face; a sign, a smaller one, a cup."""
    rgb = np.full((900, 1350, 3), 200, np.uint8)
    _put(rgb, cat, (270, 405), 80, 10)
    _put(rgb, astronaut, (360, 360), 20, 960)
    _put(rgb, page("Platform 4", "to Oxford", size=(330, 420), scale=1.6), (330, 420), 500, 10)
    _put(rgb, page("Espresso 2.40", size=(150, 330), scale=0.8), (150, 330), 600, 510)
    _put(rgb, coffee, (270, 390), 560, 950)
    return rgb


def _put(rgb: Rgb, part: Rgb, size: tuple[int, int], top: int, left: int) -> None:
    height, width = size
    scaled = cv2.resize(part, (width, height), interpolation=cv2.INTER_CUBIC)
    rgb[top : top + height, left : left + width] = scaled
