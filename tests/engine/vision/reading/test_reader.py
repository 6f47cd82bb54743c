"""Lines of text found and read in drawn pictures and in a photograph."""

from __future__ import annotations

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from headstart.engine.errors import BadWeights
from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.reading.lines import DETECTOR_FILE
from headstart.engine.vision.reading.reader import CLOSELY, GLANCE, Abandoned, Detail, TextReader
from headstart.engine.vision.reading.recogniser import RECOGNISER_FILE
from tests.engine.vision.reading.drawn import page, turned

SIGN = ("Platform 4", "Trains to Oxford")


@pytest.mark.parametrize("degrees", [0, 12, -30, 90, -90, 180])
def test_a_sign_is_read_however_it_hangs(reader: TextReader, degrees: float) -> None:
    """Lines come top first, as seen by somebody who holds the sign upright."""
    rgb = turned(page(*SIGN, size=(560, 560), top=250), degrees)
    assert reader.read(rgb, GLANCE).lines == SIGN


@pytest.mark.parametrize("sign", [("Cuidado con el perro",), ("Bookkeeper will call",), SIGN])
def test_narrow_letters_are_read(reader: TextReader, sign: tuple[str, ...]) -> None:
    """Letters of a quarter of their width are too close for the recogniser's places, until the
    line is shown to it wider."""
    wide = page(*sign)
    rgb = np.full_like(wide, 255)
    rgb[:, 100:273] = cv2.resize(wide, (173, 480), interpolation=cv2.INTER_AREA)
    assert reader.read(rgb, GLANCE).lines == sign


def test_columns_of_one_row_are_read_from_left_to_right(reader: TextReader) -> None:
    """A price stays beside its name."""
    rgb = page("Tea      1.80", "Coffee   2.50")
    assert reader.read(rgb, GLANCE).text.split() == ["Tea", "1.80", "Coffee", "2.50"]


def test_a_picture_without_writing_has_none(reader: TextReader, cat: Rgb, coffee: Rgb) -> None:
    """Fur, a cup and pictures of a few pixels give no letters."""
    assert reader.read(cat, GLANCE).lines == ()
    assert reader.read(coffee, GLANCE).lines == ()
    assert reader.read(np.zeros((1, 1, 3), np.uint8), GLANCE).lines == ()
    assert reader.read(np.full((3, 900, 3), 255, np.uint8), CLOSELY).lines == ()


def test_the_tallest_lines_are_read_and_the_others_counted(reader: TextReader) -> None:
    """The bound on lines drops small print first, and says how much."""
    rgb = np.concatenate([page("Small print here", scale=0.6)[:120], page("EXIT", scale=2)])
    written = reader.read(rgb, Detail(longest_sides=(640,), max_lines=1))
    assert (written.lines, written.more) == (("EXIT",), 1)


@pytest.mark.parametrize("scale", [0.4, 0.6, 1.2])
def test_a_closer_look_reads_thin_and_thick(reader: TextReader, scale: float) -> None:
    """Thin letters are found in the smaller of its two pictures, and none is read twice."""
    rgb = np.full((960, 1280, 3), 255, np.uint8)
    rgb[300:780, 300:940] = page("Keep out of reach", "of children", scale=scale)
    assert reader.read(rgb, CLOSELY).lines == ("Keep out of reach", "of children")


def test_equal_pictures_are_read_equally(reader: TextReader) -> None:
    """Equal pixels give equal text, so that the tokens are equal."""
    rgb = turned(page("One 1 l I", "rn m vv w"), 3)
    assert reader.read(rgb, GLANCE) == reader.read(rgb.copy(), GLANCE)


def test_an_unwanted_reading_stops_between_two_lines(reader: TextReader) -> None:
    """No further line is recognised once nobody wants it."""
    asked = []

    def unwanted() -> bool:
        asked.append(True)
        return len(asked) == 2

    with pytest.raises(Abandoned):
        reader.read(page("one", "two", "three"), GLANCE, unwanted)
    assert len(asked) == 2


def test_weights_that_are_none_are_named(reading_path: Path, tmp_path: Path) -> None:
    """A broken file and the wrong net are refused by name."""
    (tmp_path / DETECTOR_FILE).write_bytes(b"no model")
    shutil.copy(reading_path / RECOGNISER_FILE, tmp_path)
    with pytest.raises(BadWeights, match=DETECTOR_FILE):
        TextReader.load(tmp_path)
    shutil.copy(reading_path / DETECTOR_FILE, tmp_path / RECOGNISER_FILE)
    shutil.copy(reading_path / DETECTOR_FILE, tmp_path)
    with pytest.raises(BadWeights, match="characters"):
        TextReader.load(tmp_path)
