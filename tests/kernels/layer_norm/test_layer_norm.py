"""Layer norm: near fp64, row by row, the same bits whatever the batch and the processor."""

from __future__ import annotations

import pytest
import torch

from headstart.kernels.errors import KernelInputError
from headstart.kernels.layer_norm import layer_norm
from tests.kernels.compiled import LEVELS
from tests.numerics import assert_as_near


@pytest.mark.parametrize("size", [8, 72, 384, 1280])
def test_is_as_near_to_fp64_as_torch(size: int) -> None:
    """Rows with a mean of their own, one of equal values; every path has the same bits."""
    x, weight, bias = torch.randn(6, size) * 3 + 5, torch.randn(size), torch.randn(size)
    x[3] = 2.0
    exact = torch.nn.functional.layer_norm(x.double(), (size,), weight.double(), bias.double())
    got = layer_norm(x, weight, bias, backend="native")
    assert_as_near(got, layer_norm(x, weight, bias, backend="reference"), exact)
    assert all(torch.equal(got, layer_norm(x, weight, bias, backend=name)) for name in LEVELS)


def test_rows_and_threads_do_not_change_a_bit() -> None:
    """A row alone has the bits it has among 200, on one thread or three."""
    x, weight, bias = torch.randn(200, 384), torch.randn(384), torch.randn(384)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        whole = layer_norm(x, weight, bias, backend="native")
        torch.set_num_threads(1)
        for i in (0, 7, 199):
            alone = layer_norm(x[i : i + 1], weight, bias, backend="native")
            assert torch.equal(alone[0], whole[i])
    finally:
        torch.set_num_threads(before)


def test_widths_that_do_not_fit_are_refused() -> None:
    """Weights of another width, and a width that is no multiple of eight, are named."""
    with pytest.raises(KernelInputError, match="bias"):
        layer_norm(torch.randn(2, 8), torch.randn(8), torch.randn(9))
    with pytest.raises(KernelInputError, match="multiple of 8, got 12"):
        layer_norm(torch.randn(2, 12), torch.randn(12), torch.randn(12))
