"""A picture cut into regions of about one size, each a little larger than its share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headstart.engine.vision.pixels import Rgb

REGION_TOKENS = 256
"""Of a region in full size, about."""
MOST_A_SIDE = 4
# A region reaches so far into its neighbours, as a share of its sides: what a border cuts in two is
# whole in one of them if it is no larger.
_MARGIN = 1 / 8


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels; `right` and `bottom` are outside."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def pixels(self) -> int:
        return (self.right - self.left) * (self.bottom - self.top)

    def of(self, rgb: Rgb) -> Rgb:
        """These pixels of a picture, contiguous."""
        return np.ascontiguousarray(rgb[self.top : self.bottom, self.left : self.right])

    def shared(self, corners: npt.NDArray[np.floating]) -> float:
        """The share of the upright box around `corners` [n, 2], x and y, that lies within."""
        least, most = corners.min(axis=0), corners.max(axis=0)
        sides = np.maximum(most - least, 1e-6)
        inside = np.minimum(most, (self.right, self.bottom)) - np.maximum(
            least, (self.left, self.top)
        )
        return float((inside.clip(min=0) / sides).prod())


@dataclass(frozen=True, slots=True)
class Grid:
    """`rows` by `columns` regions of a picture, numbered row by row from 0."""

    height: int
    width: int
    rows: int
    columns: int

    @classmethod
    def of(cls, height: int, width: int, cell_pixels: int) -> Grid:
        """Regions of about `REGION_TOKENS` cells of `cell_pixels`, four by four at most."""
        side = math.sqrt(REGION_TOKENS * cell_pixels)
        rows, columns = (
            min(max(math.floor(length / side + 0.5), 1), MOST_A_SIDE) for length in (height, width)
        )
        return cls(height, width, rows, columns)

    def __len__(self) -> int:
        return self.rows * self.columns

    def box(self, number: int, margin: float = _MARGIN) -> Box:
        """A region with its margins."""
        row, column = divmod(number, self.columns)
        top, bottom = _edges(row, self.rows, self.height, margin)
        left, right = _edges(column, self.columns, self.width, margin)
        return Box(left, top, right, bottom)

    def centre(self, number: int) -> tuple[float, float]:
        """x and y in 0..1."""
        row, column = divmod(number, self.columns)
        return (column + 0.5) / self.columns, (row + 0.5) / self.rows


def _edges(index: int, count: int, length: int, margin: float) -> tuple[int, int]:
    size = length / count
    first = max(math.floor((index - margin) * size), 0)
    return first, min(math.ceil((index + 1 + margin) * size), length)
