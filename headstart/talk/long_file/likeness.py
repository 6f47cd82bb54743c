"""Whether two pictures of a recording show the same."""

from __future__ import annotations

import numpy as np

from headstart.gateway.video.file_sampling import NEW, Candidate
from headstart.gateway.video.scores import LOOK_HEIGHT, LOOK_WIDTH

SAME_CELL = 0.04
"""The same of the cell of a grid that differs most: a line of a slide's text that appears."""
CELLS_WIDE, CELLS_HIGH = 8, 6


def look_alike(one: Candidate, other: Candidate) -> bool:
    """As far as the small copies that were scored tell."""
    apart = np.abs(_luma(one) - _luma(other))
    cells = apart.reshape(CELLS_HIGH, LOOK_HEIGHT // CELLS_HIGH, CELLS_WIDE, -1).mean(axis=(1, 3))
    return bool(apart.mean() < NEW and cells.max() < SAME_CELL)


def _luma(candidate: Candidate) -> np.ndarray:
    """float32 [height, width], 0 to 1."""
    rgb = np.frombuffer(candidate.scores.pixels, np.uint8).reshape(LOOK_HEIGHT, LOOK_WIDTH, 3)
    weights = np.array((0.299, 0.587, 0.114), np.float32) / 255
    return np.asarray(rgb.astype(np.float32) @ weights)
