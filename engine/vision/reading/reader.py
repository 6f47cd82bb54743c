"""What is written in one picture, in reading order.

reader = TextReader.load(folder)
reader.read(rgb, GLANCE).text      "EXIT\\nPlatform 4"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.reading.lines import (
    DETECTOR_FILE,
    Line,
    LineFinder,
    cut_out,
    in_reading_order,
)
from headstart.engine.vision.reading.recogniser import RECOGNISER_FILE, LineRecogniser

# Mean probability by character from which a line counts as read.
_READ_FROM = 0.7
# The same of a single character, which a wheel, a mast or an orange may look like.
_ONE_READ_FROM = 0.95
# Below it, a line may stand on its head, or be no text.
_SURE_FROM = 0.85
# Below it, a line is read again, so many times wider. The net gives one character at most for each
# eight columns, with a blank between two equal ones: narrow letters are closer than that.
_WIDER_BELOW = 0.95
_WIDER = 2.0
# Lines found within a longer one are pieces of it if they cover less than this share of it.
_PIECES_BELOW = 0.6
# A box this much taller than long holds text that runs up or down.
_UPRIGHT_FROM = 1.5


@dataclass(frozen=True)
class Detail:
    """How closely to look: the longest side of the picture, in pixels, at which lines are looked
    for, in that order, and how many lines are read, those with the tallest letters first."""

    longest_sides: tuple[int, ...]
    max_lines: int


# Thin letters are found in a smaller picture only.
GLANCE = Detail(longest_sides=(640,), max_lines=12)
CLOSELY = Detail(longest_sides=(1280, 640), max_lines=48)


@dataclass(frozen=True)
class Written:
    """Lines in reading order. `more`: lines that were found, but not read."""

    lines: tuple[str, ...]
    more: int = 0

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Abandoned(Exception):
    """Nobody wants the rest of a reading."""


class TextReader:
    """Detector and recogniser. Holds no state between pictures."""

    def __init__(self, finder: LineFinder, recogniser: LineRecogniser) -> None:
        self._finder, self._recogniser = finder, recogniser

    @classmethod
    def load(cls, folder: Path) -> TextReader:
        """From the folder of the weight "pp-ocrv6". Raises `BadWeights`."""
        cv2.setNumThreads(1)  # the other cores are the decoder's
        finder = LineFinder(folder / DETECTOR_FILE)
        return cls(finder, LineRecogniser(folder / RECOGNISER_FILE))

    def read(
        self, rgb: Rgb, detail: Detail, unwanted: Callable[[], bool] = lambda: False
    ) -> Written:
        """What is written in `rgb`, uint8 [H, W, 3]. Raises `Abandoned` between two runs of a net,
        once the reading is `unwanted`."""
        found = self.find(rgb, detail, unwanted)
        kept: list[Line] = []
        texts: list[str] = []
        turns: list[int] = []
        for line in found[: detail.max_lines]:
            if unwanted():
                raise Abandoned
            text, turn = self.read_line(rgb, line)
            if text:
                kept.append(line)
                texts.append(text)
                turns.append(turn)
        order = in_reading_order(kept, turns)
        return Written(tuple(texts[i] for i in order), max(0, len(found) - detail.max_lines))

    def find(
        self, rgb: Rgb, detail: Detail, unwanted: Callable[[], bool] = lambda: False
    ) -> list[Line]:
        """Where lines are, those with the tallest letters first. Raises `Abandoned` as `read`."""
        found: list[Line] = []
        for side in detail.longest_sides:
            if unwanted():
                raise Abandoned
            for line in self._finder.find(rgb, side):
                _add(line, found)
        return sorted(found, key=lambda line: -line.thickness)

    def read_line(self, rgb: Rgb, line: Line) -> tuple[str, int]:
        """What one line says, "" if it is not sure, and by how many quarter turns it was turned to
        be read."""
        cut = cut_out(rgb, line)
        probability, text, turn = self._wider(cut, self._read(cut))
        text = " ".join(text.split())
        sure = probability >= (_READ_FROM if len(text) > 1 else _ONE_READ_FROM)
        return (text if sure else ""), turn

    def _read(self, line: Rgb) -> tuple[float, str, int]:
        """Probability, text, and by how many quarter turns, counter-clockwise, it was turned."""
        if line.shape[0] >= _UPRIGHT_FROM * line.shape[1]:
            return max(self._turned(line, 1), self._turned(line, -1))
        read = self._turned(line, 0)
        return read if read[0] >= _SURE_FROM else max(read, self._turned(line, 2))

    def _wider(self, line: Rgb, read: tuple[float, str, int]) -> tuple[float, str, int]:
        """What was read of a line; if it is not sure, the likelier of it and of the line wider."""
        if not 0 < read[0] < _WIDER_BELOW:
            return read
        return max(read, self._turned(line, read[2], _WIDER))

    def _turned(self, line: Rgb, turns: int, stretch: float = 1.0) -> tuple[float, str, int]:
        text, probability = self._recogniser.read(np.rot90(line, turns), stretch)
        return probability, text, turns


def _add(line: Line, found: list[Line]) -> None:
    """Add a line, unless it is among those `found`. It replaces what are only pieces of it."""
    pieces = [other for other in found if _holds(line, other)]
    is_whole = sum(piece.length for piece in pieces) < _PIECES_BELOW * line.length
    if pieces and is_whole:
        found[:] = [other for other in found if not _holds(line, other)]
    elif pieces or any(_holds(other, line) for other in found):
        return
    found.append(line)


def _holds(line: Line, other: Line) -> bool:
    """Whether the middle of the other one lies within the line."""
    return cv2.pointPolygonTest(line.corners, other.centre, False) >= 0
