"""Which way up a picture is to be shown."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from headstart.gateway.protocol.orientation import (
    EXIF_PREFIX,
    UPRIGHT,
    of_exif,
    of_matrix,
    upright,
)
from tests.gateway.protocol.files import exif

PIXELS = np.arange(6, dtype=np.uint8).reshape(2, 3)
ONE = 1 << 16


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_pillow_turns_them(orientation: int) -> None:
    """All eight, against `ImageOps.exif_transpose`."""
    image = Image.fromarray(PIXELS)
    image.getexif()[274] = orientation
    wanted = np.asarray(ImageOps.exif_transpose(image))
    got = upright(PIXELS, orientation)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("prefix", [b"", EXIF_PREFIX])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_is_read_in_both_byte_orders(orientation: int, prefix: bytes, order: str) -> None:
    """With a JPEG's prefix and without."""
    assert of_exif(prefix + exif(orientation, order)) == orientation


@pytest.mark.parametrize("value", [0, 9, 65535])
def test_values_that_exif_does_not_have_are_upright(value: int) -> None:
    """As viewers take them."""
    assert of_exif(exif(value)) == UPRIGHT


@given(st.binary(max_size=64), st.integers(0, 26), st.booleans())
def test_damaged_exif_is_upright_or_an_orientation(noise: bytes, length: int, cut: bool) -> None:
    """Whatever stands there, nothing is raised."""
    assert 1 <= of_exif(exif(6)[:length] + (b"" if cut else noise)) <= 8
    assert 1 <= of_exif(b"MM\0*" + noise) <= 8


@pytest.mark.parametrize(
    ("degrees", "orientation"), [(0, 1), (90, 6), (180, 3), (270, 8), (89, 6), (-10, 1)]
)
def test_a_matrix_turns_clockwise(degrees: int, orientation: int) -> None:
    """As phones write it; angles between count as the nearest right one."""
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    turned = [cos, sin, 0, -sin, cos, 0]
    values = [*(round(value * ONE) for value in turned), 0, 0, 1 << 30]
    assert of_matrix(struct.pack("=9i", *values)) == orientation


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_matrix_shows_each_pixel_where_it_says(orientation: int) -> None:
    """The pixel at (x, y) is shown at (a x + c y, b x + d y), shifted into the picture."""
    for a, b, c, d in [(a, 0, 0, d) for a in (-1, 1) for d in (-1, 1)] + [
        (0, b, c, 0) for b in (-1, 1) for c in (-1, 1)
    ]:
        matrix = struct.pack("=9i", a * ONE, b * ONE, 0, c * ONE, d * ONE, 0, 0, 0, 1 << 30)
        if of_matrix(matrix) != orientation:
            continue
        places = {(x, y): (a * x + c * y, b * x + d * y) for y in range(2) for x in range(3)}
        left = min(x for x, _ in places.values())
        top = min(y for _, y in places.values())
        shown = upright(PIXELS, orientation)
        for (x, y), (to_x, to_y) in places.items():
            assert shown[to_y - top, to_x - left] == PIXELS[y, x]
        return
    pytest.fail("no matrix asks for it")


def test_a_matrix_that_is_none_changes_nothing() -> None:
    """Too short, or all zero."""
    assert of_matrix(b"") == UPRIGHT
    assert of_matrix(bytes(36)) == UPRIGHT
