"""A packed weight has exactly the file's numbers, and says what it takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headstart.kernels import qlinear
from headstart.kernels.gpu.checks import QUANTISED, random_blocks
from headstart.kernels.gpu.packed_weight import dequantize, pack, shaped
from headstart.kernels.qlinear.formats import FORMATS, WeightShapeError


@pytest.mark.parametrize("kind", QUANTISED)
def test_the_numbers_are_those_of_the_cpus_packing(kind: str) -> None:
    """To the bit, rows that fill no panel; in fp32 all products are exact or rounded alike."""
    raw = random_blocks(kind, 37, 512)
    theirs = qlinear.dequantize(qlinear.pack(kind, raw, 37, 512, backend="reference"))
    assert torch.equal(dequantize(pack(kind, raw, 37, 512)), theirs)


@pytest.mark.parametrize("kind", QUANTISED)
def test_it_takes_about_what_the_file_takes(kind: str) -> None:
    """At most 3 % more, where 6-bit sub-scales become bytes; a weight without contents as much."""
    raw = random_blocks(kind, 64, 512)
    packed, planned = pack(kind, raw, 64, 512), shaped(kind, 64, 512, "meta")
    assert raw.size <= packed.nbytes <= raw.size * 1.03
    for made, empty in zip(packed.planes, planned.planes, strict=True):
        if made is None or empty is None:
            assert made is empty
        else:
            assert (made.shape, made.dtype) == (empty.shape, empty.dtype)
            assert made.is_contiguous()


def test_floats_are_no_codes() -> None:
    """F16 is refused: there is nothing to unpack."""
    with pytest.raises(WeightShapeError, match="quantised"):
        pack("F16", np.zeros(64, np.uint8), 1, 32)
    assert FORMATS["F16"].is_float
