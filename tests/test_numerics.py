"""The bound that fp32 comparisons share: wide enough for rounding, too narrow for a mistake."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.numerics import assert_as_near


@pytest.fixture
def product() -> tuple[Tensor, Tensor, Tensor]:
    """x, w, and their product in fp64."""
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(60, 500, generator=generator) for _ in range(2))
    return x, w, x.double() @ w.double().T


def one_by_one(x: Tensor, w: Tensor) -> Tensor:
    """The worst order there is: one chain of 500 roundings."""
    total = torch.zeros(len(x), len(w))
    for k in range(x.shape[1]):
        total = total + x[:, k, None] * w[None, :, k]
    return total


def test_another_order_of_the_sums_is_near(product: tuple[Tensor, Tensor, Tensor]) -> None:
    """Backwards, and in two halves, are as good as forwards."""
    x, w, exact = product
    forwards, backwards = one_by_one(x, w), one_by_one(x.flip(1), w.flip(1))
    halves = one_by_one(x[:, :250], w[:, :250]) + one_by_one(x[:, 250:], w[:, 250:])
    assert_as_near(backwards, forwards, exact)
    assert_as_near(halves, forwards, exact)


def test_one_wrong_element_is_far(product: tuple[Tensor, Tensor, Tensor]) -> None:
    """An error that the mean hides shows at its place."""
    x, w, exact = product
    theirs = one_by_one(x, w)
    ours = theirs.clone()
    ours[7, 11] += 1e-3
    with pytest.raises(AssertionError, match="largest"):
        assert_as_near(ours, theirs, exact)


def test_a_little_off_everywhere_is_far(product: tuple[Tensor, Tensor, Tensor]) -> None:
    """A factor of 1.00001 shows in the mean."""
    x, w, exact = product
    theirs = one_by_one(x, w)
    with pytest.raises(AssertionError, match="root_mean_square"):
        assert_as_near(theirs * 1.00001, theirs, exact)


def test_an_exact_reference_leaves_a_step_of_the_result() -> None:
    """Where the reference rounds nothing, the result may still be off by its own last bit."""
    exact = torch.linspace(1, 2, 50, dtype=torch.float64)
    theirs = exact.float()
    assert_as_near(theirs * (1 + 2**-23), theirs, theirs.double())
    with pytest.raises(AssertionError):
        assert_as_near(theirs * (1 + 2**-19), theirs, theirs.double())
