"""What the regions of a picture show. Each kind of finding is looked for once, when a question
needs it: reading takes tenths of a second, naming some hundredths for each region.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headstart.engine.vision.faces import Faces
from headstart.engine.vision.labeller import FrameLabeller
from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.regions.grid import Grid

# A line is in each region that has at least this share of it.
_IN_REGION = 0.3
# A name that is less likely says nothing.
_NAMED_FROM = 0.12
# Side of the squares in which a region is compared with what it was.
_COMPARED_PX = 8
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # Rec. 601


@dataclass(frozen=True, slots=True, eq=False)
class ReadLine:
    """A line that was read: the corners of its box [4, 2], x and y in pixels, and its height."""

    corners: npt.NDArray[np.float32]
    height_px: float
    text: str


ReadLines = Callable[[Rgb], Iterable[ReadLine]]


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
        read: ReadLines | None = None,
        faces: Faces | None = None,
        labeller: FrameLabeller | None = None,
    ) -> None:
        self._read, self._faces, self._labeller = read, faces, labeller

    def writing(self, rgb: Rgb, found: Findings) -> dict[int, Writing]:
        """`Findings.writing`. Of what looks like a line, only what can be read counts."""
        if found.writing is None:
            found.writing = {}
            for line in () if self._read is None else self._read(rgb):
                for number in _regions_of(line, found.grid):
                    found.writing[number] = _with(found.writing.get(number), line)
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
    found = {}
    for number in range(len(grid)):
        box = grid.box(number, margin=0)
        now, then = (_luma(box.of(picture)) for picture in (rgb, before))
        found[number] = float(np.abs(now - then).mean()) / 255
    return found


def _luma(part: Rgb) -> npt.NDArray[np.float32]:
    """Means over squares of `_COMPARED_PX`: noise is no change. What they leave over at the right
    and at the bottom is not compared."""
    rows, columns = part.shape[:2]
    high, wide = min(_COMPARED_PX, rows), min(_COMPARED_PX, columns)
    whole = part[: rows // high * high, : columns // wide * wide].astype(np.float32) @ _LUMA
    means = whole.reshape(rows // high, high, columns // wide, wide).mean(axis=(1, 3))
    return np.asarray(means, np.float32)


def _with(before: Writing | None, line: ReadLine) -> Writing:
    text = line.text.lower()
    if before is None:
        return Writing(line.height_px, text)
    return Writing(min(before.least_px, line.height_px), f"{before.text} {text}")


def _regions_of(line: ReadLine, grid: Grid) -> list[int]:
    shares = {n: grid.box(n).shared(line.corners) for n in range(len(grid))}
    most = max(shares.values())
    return [number for number, share in shares.items() if share >= min(_IN_REGION, most)]


def _parts(rgb: Rgb, found: Findings) -> list[tuple[int, Rgb]]:
    return [(number, found.grid.box(number).of(rgb)) for number in range(len(found.grid))]
