"""Light and colour from pixels alone."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.engine.vision.pixels import Rgb, describe


def plain(red: int, green: int, blue: int) -> Rgb:
    return np.full((48, 64, 3), (red, green, blue), np.uint8)


@pytest.mark.parametrize(
    ("rgb", "colour"),
    [
        ((0, 0, 0), "black"),
        ((128, 128, 128), "grey"),
        ((255, 255, 255), "white"),
        ((220, 20, 20), "red"),
        ((230, 15, 60), "red"),
        ((255, 140, 0), "orange"),
        ((110, 70, 30), "brown"),
        ((250, 230, 30), "yellow"),
        ((30, 160, 50), "green"),
        ((40, 200, 200), "turquoise"),
        ((30, 60, 220), "blue"),
        ((120, 40, 200), "purple"),
        ((255, 105, 180), "pink"),
        ((255, 182, 193), "pink"),
    ],
)
def test_plain_colours_have_their_names(rgb: tuple[int, int, int], colour: str) -> None:
    """A picture of one colour is called that, and is blank."""
    look = describe(plain(*rgb))
    assert look.colour == colour
    assert look.is_blank


@pytest.mark.parametrize(("level", "word"), [(10, "dark"), (110, "well lit"), (220, "bright")])
def test_light_has_three_words(level: int, word: str) -> None:
    """By mean luma of the whole picture."""
    look = describe(plain(level, level, level))
    assert look.brightness == word
    assert look.luma == pytest.approx(level / 255.0, abs=1e-3)


def test_the_middle_decides_the_colour() -> None:
    """A red thing held before a green wall is red, though the wall has more pixels."""
    picture = plain(30, 160, 50)
    picture[12:36, 16:48] = (220, 20, 20)
    assert describe(picture).colour == "red"


def test_a_real_colour_goes_before_grey() -> None:
    """A third of the middle blue on grey is blue; a tenth is grey."""
    picture = plain(128, 128, 128)
    picture[:, 26:38] = (30, 60, 220)
    assert describe(picture).colour == "blue"
    picture = plain(128, 128, 128)
    picture[:, 30:33] = (30, 60, 220)
    assert describe(picture).colour == "grey"


def test_texture_is_not_blank() -> None:
    """Noise of a few levels is a covered lens; stripes are a picture."""
    noise = np.random.default_rng(0).integers(-3, 4, (48, 64, 3))
    assert describe((plain(20, 20, 20) + noise).astype(np.uint8)).is_blank
    picture = plain(128, 128, 128)
    picture[::4] = 160
    assert not describe(picture).is_blank


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (3, 500), (1080, 1920)])
def test_any_size_will_do(shape: tuple[int, int]) -> None:
    """Single pixels and full HD alike."""
    picture = np.full((*shape, 3), (30, 60, 220), np.uint8)
    assert describe(picture).colour == "blue"
