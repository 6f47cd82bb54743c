"""What the regions of a picture show. Each kind of finding is looked for once, when a question
needs it: reading takes tenths of a second, naming some hundredths for each region.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from headstart.engine.vision.faces import Faces
from headstart.engine.vision.labeller import FrameLabeller
from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.reading.lines import Line
from headstart.engine.vision.reading.reader import Detail, TextReader
from headstart.engine.vision.regions.grid import Grid

LOOKED_AT = Detail(longest_sides=(640,), max_lines=24)
# A line is in each region that has at least this share of it.
_IN_REGION = 0.3
# A name that is less likely says nothing.
_NAMED_FROM = 0.12
# Sides of the grey pictures in which a region is compared with what it was.
_COMPARED_PX = 32


@dataclass(frozen=True, slots=True)
class Writing:
    """`least_px`: height of the lowest line, in pixels of the picture; `text`: in small letters."""

    least_px: float
    text: str


@dataclass(slots=True)
class Findings:
    """Of one picture, by region number; None: not looked for. Holds no pixels.

    `writing` and `faces` (their number): only of regions with some. `names`: probability of each
    name of what is there.
    """

    grid: Grid
    writing: dict[int, Writing] | None = None
    faces: dict[int, int] | None = None
    names: dict[int, dict[str, float]] | None = None


class RegionFinder:
    """Looks for writing, faces and things; for none of a kind without its detector. Its methods
    take a picture, uint8 [H, W, 3], with what has been found in it, and add to that."""

    def __init__(
        self,
        reader: TextReader | None = None,
        faces: Faces | None = None,
        labeller: FrameLabeller | None = None,
    ) -> None:
        self._reader, self._faces, self._labeller = reader, faces, labeller

    @classmethod
    def load(
        cls, reading: Path | None, faces: Path | None, eyes: Path | None, names: Path | None
    ) -> RegionFinder:
        """From the weights "pp-ocrv6", "mtcnn", the image network and "imagenet-names". Raises
        `BadWeights`."""
        return cls(
            None if reading is None else TextReader.load(reading),
            None if faces is None else Faces.load(faces),
            None if eyes is None or names is None else FrameLabeller.load(eyes, names),
        )

    def writing(self, rgb: Rgb, found: Findings) -> dict[int, Writing]:
        """`Findings.writing`. Of what looks like a line, only what can be read counts."""
        if found.writing is None:
            found.writing = {}
            lines = [] if self._reader is None else self._reader.find(rgb, LOOKED_AT)
            for line in lines[: LOOKED_AT.max_lines]:
                assert self._reader is not None
                text, _ = self._reader.read_line(rgb, line)
                for number in _regions_of(line, found.grid) if text else ():
                    before = found.writing.get(number)
                    found.writing[number] = _with(before, line.thickness, text.lower())
        return found.writing

    def people(self, rgb: Rgb, found: Findings) -> dict[int, int]:
        """`Findings.faces`. Each region is searched by itself, so a face may be smaller than one
        that is found in the whole picture."""
        if found.faces is None:
            finder = self._faces
            counts = {
                n: 0 if finder is None else len(finder.find(part)) for n, part in _parts(rgb, found)
            }
            found.faces = {number: count for number, count in counts.items() if count}
        return found.faces

    def things(self, rgb: Rgb, found: Findings) -> dict[int, dict[str, float]]:
        """`Findings.names`."""
        if found.names is None:
            found.names = (
                {}
                if self._labeller is None
                else {n: self._named(part) for n, part in _parts(rgb, found)}
            )
        return found.names

    def _named(self, part: Rgb) -> dict[str, float]:
        assert self._labeller is not None
        labels = self._labeller.label(part)
        if labels.is_blank:
            return {}
        names = {labels.label: labels.probability, **dict(labels.alternatives)}
        if labels.kind is not None:
            names[labels.kind] = max(names.get(labels.kind, 0.0), labels.kind_probability)
        return {name: p for name, p in names.items() if p >= _NAMED_FROM}


def changes(rgb: Rgb, before: Rgb | None, grid: Grid) -> dict[int, float]:
    """Mean difference of luma, 0..1, of each region from what it was in a picture of the same size;
    for no or another size none."""
    if before is None or before.shape != rgb.shape:
        return {}
    now, then = (cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY) for picture in (rgb, before))
    found = {}
    for number in range(len(grid)):
        box = grid.box(number, margin=0)
        parts = (
            cv2.resize(
                picture[box.top : box.bottom, box.left : box.right],
                (_COMPARED_PX, _COMPARED_PX),
                interpolation=cv2.INTER_AREA,
            ).astype(np.float32)
            for picture in (now, then)
        )
        found[number] = float(np.abs(next(parts) - next(parts)).mean()) / 255
    return found


def _with(before: Writing | None, height_px: float, text: str) -> Writing:
    if before is None:
        return Writing(height_px, text)
    return Writing(min(before.least_px, height_px), f"{before.text} {text}")


def _regions_of(line: Line, grid: Grid) -> list[int]:
    shares = {n: grid.box(n).shared(line.corners) for n in range(len(grid))}
    most = max(shares.values())
    return [number for number, share in shares.items() if share >= min(_IN_REGION, most)]


def _parts(rgb: Rgb, found: Findings) -> list[tuple[int, Rgb]]:
    return [(number, found.grid.box(number).of(rgb)) for number in range(len(found.grid))]
