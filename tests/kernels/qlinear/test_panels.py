"""Panels hold a weight without loss and take no more bytes than they say."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.kernels.qlinear.formats import decode, lookup
from headstart.kernels.qlinear.panels import PANEL, from_panels, panel_bytes, panel_count, to_panels
from tests.kernels.qlinear.blocks import QUANTIZED, random_blocks


@pytest.mark.parametrize("kind", QUANTIZED)
@pytest.mark.parametrize("rows", [1, 16, 37])
def test_round_trip(kind: str, rows: int) -> None:
    """to_panels and from_panels are inverse on the rows that exist."""
    planes = decode(kind, random_blocks(kind, rows, 512), rows, 512)
    packed = to_panels(kind, planes)
    assert packed.shape == (panel_count(rows), panel_bytes(lookup(kind), 512))
    back = from_panels(kind, packed, 512)
    np.testing.assert_array_equal(back.q[:rows], planes.q)
    np.testing.assert_array_equal(back.scale[:rows], planes.scale)
    for name in ("minimum", "sub_scale", "sub_minimum"):
        ours, theirs = getattr(back, name), getattr(planes, name)
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            np.testing.assert_array_equal(ours[:rows], theirs)


@pytest.mark.parametrize("kind", QUANTIZED)
def test_rows_beyond_the_last_are_zero_bytes(kind: str) -> None:
    """Padding rows change no byte of the output: one row's panel equals the row among zeros."""
    form = lookup(kind)
    one = to_panels(kind, decode(kind, random_blocks(kind, 1, 256), 1, 256))
    values = from_panels(kind, one, 256)
    assert not values.scale[1:].view(np.uint16).any()
    zero = 128 if form.bits == 8 else 0
    assert (values.q[1:PANEL] == zero).all()


def test_four_bit_panels_stay_near_the_file_in_size() -> None:
    """A packed weight takes the file's bytes, or 3 % more where 6-bit sub-scales become bytes."""
    for kind in QUANTIZED:
        form = lookup(kind)
        in_file = PANEL * 1024 // form.block * form.block_bytes
        assert in_file <= panel_bytes(form, 1024) <= 1.03 * in_file
