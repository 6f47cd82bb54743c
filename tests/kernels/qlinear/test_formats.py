"""GGUF blocks are decoded losslessly, and what is not a weight is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.kernels.qlinear.formats import (
    UnknownKindError,
    WeightShapeError,
    check_shape,
    decode,
)
from tests.kernels.qlinear.blocks import QUANTIZED, random_blocks


@pytest.mark.parametrize("kind", QUANTIZED)
def test_codes_use_their_whole_range(kind: str) -> None:
    """Random blocks decode to every code from 0 to 2^bits - 1, one per weight."""
    planes = decode(kind, random_blocks(kind, 64, 512), 64, 512)
    bits = {"Q8_0": 8, "Q6_K": 6}.get(kind, int(kind[1]))
    assert planes.q.shape == (64, 512)
    assert set(np.unique(planes.q)) == set(range(2**bits))


def test_unknown_kind_is_refused() -> None:
    """A kind that no kernel reads is named, together with those that can be read."""
    with pytest.raises(UnknownKindError, match=r"'IQ2_XS'.*Q4_K"):
        check_shape("IQ2_XS", 10, 1, 32)


@pytest.mark.parametrize(
    ("kind", "size", "rows", "cols"),
    [("Q4_K", 144, 1, 128), ("Q4_0", 18, 1, 33), ("Q4_0", 17, 1, 32), ("F32", 0, 0, 4)],
)
def test_wrong_sizes_are_refused(kind: str, size: int, rows: int, cols: int) -> None:
    """Columns that are no multiple of the block, missing bytes and no rows at all are errors."""
    with pytest.raises(WeightShapeError):
        check_shape(kind, size, rows, cols)
