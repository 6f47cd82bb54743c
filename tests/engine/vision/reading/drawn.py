"""Pictures with words, drawn with OpenCV's own strokes."""

from __future__ import annotations

import cv2
import numpy as np

from headstart.engine import api
from headstart.engine.vision.pixels import Rgb


def page(*lines: str, size: tuple[int, int] = (480, 640), scale: float = 1.2, top: int = 70) -> Rgb:
    """Black words on white, a line below the other from `top` on: uint8 [H, W, 3]."""
    rgb, thick = np.full((*size, 3), 255, np.uint8), max(1, round(1.7 * scale))
    for number, line in enumerate(lines):
        at = (40, round(top + number * 60 * scale))
        cv2.putText(rgb, line, at, cv2.FONT_HERSHEY_DUPLEX, scale, (0, 0, 0), thick, cv2.LINE_AA)
    return rgb


def turned(rgb: Rgb, degrees: float) -> Rgb:
    """Turned clockwise around its middle, on white."""
    rows, columns = rgb.shape[:2]
    turn = cv2.getRotationMatrix2D((columns / 2, rows / 2), -degrees, 1.0)
    white = (255, 255, 255)
    return np.asarray(cv2.warpAffine(rgb, turn, (columns, rows), borderValue=white), np.uint8)


def image(rgb: Rgb) -> api.Image:
    return api.Image(rgb.shape[1], rgb.shape[0], rgb.tobytes())
