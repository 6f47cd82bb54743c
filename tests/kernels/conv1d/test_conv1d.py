"""Convolution over time: near fp64, and the same bits in any cut, on any path and thread count."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.kernels.conv1d import ConvWeight, conv1d_gelu, pack, unpack
from headstart.kernels.errors import KernelInputError
from tests.kernels.compiled import LEVELS
from tests.numerics import assert_as_near

# channels, outputs, taps, stride, rows: Whisper's two, and sizes that fill no panel, tile or part
SIZES = [
    (80, 384, 3, 1, 42),
    (384, 384, 3, 2, 61),
    (1, 1, 1, 1, 40),
    (5, 17, 3, 1, 3),
    (7, 33, 2, 3, 19),
    (200, 40, 4, 2, 230),
]


def weights(channels: int, outputs: int, taps: int) -> tuple[Tensor, Tensor]:
    return torch.randn(outputs, channels, taps) / (channels * taps) ** 0.5, torch.randn(outputs)


@pytest.mark.parametrize(("channels", "outputs", "taps", "stride", "rows"), SIZES)
def test_is_as_near_to_fp64_as_torch(
    channels: int, outputs: int, taps: int, stride: int, rows: int
) -> None:
    """Of any size; the portable path has the same bits."""
    weight, bias = weights(channels, outputs, taps)
    x, packed = torch.randn(rows + taps - 1, channels), pack(weight, bias)
    exact = F.gelu(F.conv1d(x.double().T[None], weight.double(), bias.double(), stride))[0].T
    got = conv1d_gelu(x, packed, stride, backend="native")
    assert_as_near(got, conv1d_gelu(x, packed, stride, backend="reference"), exact)
    assert all(torch.equal(got, conv1d_gelu(x, packed, stride, backend=name)) for name in LEVELS)


def test_a_row_has_the_bits_it_has_alone() -> None:
    """Rows one by one, on one thread, are the rows of the whole on three."""
    packed, x = pack(*weights(384, 48, 3)), torch.randn(241, 384)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        whole = conv1d_gelu(x, packed, 2, backend="native")
        torch.set_num_threads(1)
        for i in (0, 1, 57, 95, 96, 119):
            alone = conv1d_gelu(x[2 * i : 2 * i + 3], packed, 2, backend="native")
            assert torch.equal(alone[0], whole[i])
    finally:
        torch.set_num_threads(before)


def test_packing_loses_nothing() -> None:
    """The panels hold the weight."""
    weight, bias = weights(7, 33, 2)
    assert torch.equal(unpack(pack(weight, bias)), weight)


@pytest.mark.parametrize(
    ("x", "stride", "message"),
    [
        (torch.randn(9, 4), 1, "x: expected float32"),
        (torch.randn(2, 5), 1, "at least 3 rows"),
        (torch.randn(9, 5), 0, "a stride above 0"),
    ],
)
def test_what_does_not_fit_is_refused(x: Tensor, stride: int, message: str) -> None:
    """Other channels, less than one row's receptive field, no stride."""
    packed: ConvWeight = pack(*weights(5, 6, 3))
    with pytest.raises(KernelInputError, match=message):
        conv1d_gelu(x, packed, stride)
