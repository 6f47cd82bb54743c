"""Reads one line of text: PP-OCRv6's recogniser, and the likeliest character at each place (CTC).

It knows 18,708 characters: Latin with accents, Greek, Chinese, Japanese, digits and signs; neither
Cyrillic nor Arabic.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from headstart.engine.errors import BadWeights
from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.reading.onnx import load_net_with_characters

RECOGNISER_FILE = "PP-OCRv6_rec_small.onnx"

_ROWS = 48  # of the net's input
_LEAST_COLUMNS = 160  # shorter lines are padded on the right, as in training
# A longer line is squeezed; 2,400 columns are about 120 characters.
_MOST_COLUMNS = 2_400
_BLANK = 0


class LineRecogniser:
    """The recogniser with its weights. Holds no state between lines."""

    def __init__(self, path: Path) -> None:
        """Raises `BadWeights`."""
        self._net, listed = load_net_with_characters(path)
        self._characters = ["", *listed, " "]
        classes = self._net(np.zeros((1, 3, _ROWS, _LEAST_COLUMNS), np.float32)).shape[-1]
        if classes != len(self._characters):
            raise BadWeights(path, "characters", str(classes - 2), str(len(listed)))

    def read(self, line: Rgb, stretch: float = 1.0) -> tuple[str, float]:
        """The text of a line, uint8 [h, w, 3], and its mean probability by character. `stretch`:
        how many times wider than it is the line is shown to the net."""
        rows, columns = line.shape[:2]
        wide = min(_MOST_COLUMNS, max(1, round(stretch * columns * _ROWS / rows)))
        how = cv2.INTER_AREA if rows > _ROWS else cv2.INTER_LINEAR
        small = cv2.resize(line, (wide, _ROWS), interpolation=how)
        x = np.zeros((1, 3, _ROWS, max(_LEAST_COLUMNS, -(-wide // 8) * 8)), np.float32)
        x[0, :, :, :wide] = small[:, :, ::-1].transpose(2, 0, 1).astype(np.float32) / 127.5 - 1.0
        scores = self._net(x)[0]
        best = scores.argmax(axis=1)
        drawn = (best != _BLANK) & np.concatenate(([True], best[1:] != best[:-1]))
        if not drawn.any():
            return "", 0.0
        text = "".join(self._characters[i] for i in best[drawn])
        return text, float(scores.max(axis=1)[drawn].mean())
