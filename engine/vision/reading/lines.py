"""Where a picture has lines of text: PP-OCRv6's detector, and boxes from its probability map.

The detector is a differentiable-binarization net (Liao et al., 2019): it gives each pixel the
probability that it lies in the *core* of a line, its box shrunk so that neighbours stay apart.
A box is thus the smallest rectangle around a connected core, grown again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import cos, hypot, radians, sin
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt

from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.reading.onnx import load_net

DETECTOR_FILE = "PP-OCRv6_det_small.onnx"

# The net halves its input five times.
_MULTIPLE = 32
_CORE_FROM = 0.3  # probability of a pixel in a core
_LINE_FROM = 0.6  # mean probability over a core
# Area by perimeter of a core, times this, is how far each side of its box is moved out.
_GROWTH = 1.5
_LEAST_CORE_PX = 3  # short side, in the net's input
# Cores that are looked at, in the order of the map; bounds the cost of a page or a texture.
_MAX_CORES = 400

Corners = npt.NDArray[np.float32]  # [4, 2]: x, y in pixels, clockwise from the text's top left


@dataclass(frozen=True)
class Line:
    """One line's box. `angle`: of its baseline, in radians, clockwise, within a quarter turn of
    level. `length` and `height` in pixels."""

    corners: Corners
    length: float
    height: float
    angle: float

    @property
    def thickness(self) -> float:
        """Height of its letters, whichever way they run."""
        return min(self.height, self.length)

    @cached_property
    def centre(self) -> tuple[float, float]:
        x, y = self.corners.mean(axis=0).tolist()
        return x, y


class LineFinder:
    """The detector with its weights. Holds no state between pictures."""

    def __init__(self, path: Path) -> None:
        """Raises `BadWeights`."""
        self._net = load_net(path)

    def find(self, rgb: Rgb, longest_side: int) -> list[Line]:
        """The lines of `rgb`, uint8 [H, W, 3], looked for at `longest_side` pixels; in no order."""
        height, width = rgb.shape[:2]
        scale = longest_side / max(height, width)
        rows, columns = (_fitting(side * scale) for side in (height, width))
        # Area averaging where it is scaled down: bilinear would skip thin strokes.
        how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        small = cv2.resize(rgb, (columns, rows), interpolation=how)
        # The net was trained on BGR.
        x = np.ascontiguousarray(small[:, :, ::-1].transpose(2, 0, 1)[None], np.float32)
        core = self._net(x / 127.5 - 1.0)[0, 0]
        size = np.array([width / columns, height / rows], np.float32)
        return [_line(corners * size) for corners in _boxes(core)]


def _fitting(side: float) -> int:
    return max(_MULTIPLE, round(side / _MULTIPLE) * _MULTIPLE)


def _boxes(core: npt.NDArray[np.float32]) -> list[Corners]:
    """Grown boxes of the cores in a map [H, W]."""
    mask = (core > _CORE_FROM).astype(np.uint8)
    outlines, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    boxes = []
    for outline in outlines[:_MAX_CORES]:
        centre, (width, height), degrees = cv2.minAreaRect(outline)
        if min(width, height) < _LEAST_CORE_PX:
            continue
        around = np.asarray(cv2.boxPoints((centre, (width, height), degrees)), np.float32)
        if _mean_inside(core, around) < _LINE_FROM:
            continue
        grown = 2 * _GROWTH * width * height / (2 * (width + height))
        boxes.append(_corners(centre, (width + grown, height + grown), degrees))
    return boxes


def _mean_inside(core: npt.NDArray[np.float32], box: npt.NDArray[np.float32]) -> float:
    """Mean of the map within a box."""
    rows, columns = core.shape
    left, top = np.maximum(np.floor(box.min(axis=0)).astype(int), 0)
    right = min(int(np.ceil(box[:, 0].max())), columns - 1)
    bottom = min(int(np.ceil(box[:, 1].max())), rows - 1)
    inside = np.zeros((bottom - top + 1, right - left + 1), np.uint8)
    cv2.fillPoly(inside, [(box - (left, top)).astype(np.int32)], (1,))
    return float(cv2.mean(core[top : bottom + 1, left : right + 1], mask=inside)[0])


def _corners(centre: Sequence[float], size: tuple[float, float], degrees: float) -> Corners:
    """A rectangle's corners, its side nearest to level first."""
    width, height = size
    while degrees > 45:
        width, height, degrees = height, width, degrees - 90
    while degrees < -45:
        width, height, degrees = height, width, degrees + 90
    along = np.array([cos(radians(degrees)), sin(radians(degrees))]) * width / 2
    down = np.array([-sin(radians(degrees)), cos(radians(degrees))]) * height / 2
    middle = np.array(centre)
    corners = [middle - along - down, middle + along - down, middle + along + down]
    return np.array([*corners, middle - along + down], np.float32)


def _line(corners: Corners) -> Line:
    right, down = corners[1] - corners[0], corners[3] - corners[0]
    angle = float(np.arctan2(right[1], right[0]))
    return Line(corners, hypot(*right.tolist()), hypot(*down.tolist()), angle)


def cut_out(rgb: Rgb, line: Line) -> Rgb:
    """A line's pixels, level: uint8 [height, length, 3]."""
    columns, rows = max(1, round(line.length)), max(1, round(line.height))
    target = np.array([[0, 0], [columns, 0], [columns, rows], [0, rows]], np.float32)
    warp = cv2.getPerspectiveTransform(line.corners, target)
    return np.asarray(
        cv2.warpPerspective(
            rgb, warp, (columns, rows), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
        ),
        np.uint8,
    )


def in_reading_order(lines: Sequence[Line], turns: Sequence[int]) -> list[int]:
    """Indices of `lines` row by row, each row from left to right, along the text's own slant.
    `turns`: by how many quarter turns, counter-clockwise, each was turned to be read."""
    if not lines:
        return []
    lengths = np.array([line.length for line in lines])
    slants = np.array([line.angle for line in lines]) + np.array(turns) * np.pi / 2
    slant = float(np.angle((lengths * np.exp(1j * slants)).sum()))
    level = np.array([[cos(slant), -sin(slant)], [sin(slant), cos(slant)]])
    centres = np.array([line.centre for line in lines]) @ level
    rows: list[list[int]] = []
    for index in sorted(range(len(lines)), key=lambda i: float(centres[i, 1])):
        row = rows[-1] if rows else []
        first = row[0] if row else index
        apart = float(centres[index, 1] - centres[first, 1])
        if row and apart < min(lines[index].thickness, lines[first].thickness) / 2:
            row.append(index)
        else:
            rows.append([index])
    return [i for row in rows for i in sorted(row, key=lambda i: float(centres[i, 0]))]
