"""Rotary embedding: the reference's bits, and lengths kept."""

from __future__ import annotations

import pytest
import torch

from headstart.kernels.errors import KernelInputError
from headstart.kernels.rope import rope
from tests.kernels.compiled import LEVELS


@pytest.mark.parametrize("size", [(1, 1, 2), (5, 14, 64), (3, 3, 22), (70, 14, 128)])
def test_equals_the_reference_bit_for_bit(size: tuple[int, int, int]) -> None:
    """One multiplication and one addition each, rounded alike: the same bits as torch."""
    x = torch.randn(size)
    cos, sin = torch.randn(size[0], size[2] // 2), torch.randn(size[0], size[2] // 2)
    want = rope(x, cos, sin, backend="reference")
    assert torch.equal(rope(x, cos, sin), want)
    assert all(torch.equal(rope(x, cos, sin, backend=name), want) for name in LEVELS)


def test_rotation_keeps_lengths_and_turns_by_the_angle() -> None:
    """(1, 0) turned by a quarter is (0, 1): first half against second, not neighbours."""
    x = torch.zeros(1, 1, 4)
    x[0, 0, 0] = 1.0
    turned = rope(x, torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
    assert torch.equal(turned, torch.tensor([[[0.0, 0.0, 1.0, 0.0]]]))


def test_odd_heads_and_wrong_angles_are_refused() -> None:
    """An odd head dimension has no halves; angles must be one per row and pair."""
    with pytest.raises(KernelInputError, match="even"):
        rope(torch.randn(1, 1, 3), torch.randn(1, 1), torch.randn(1, 1))
    with pytest.raises(KernelInputError, match="sin"):
        rope(torch.randn(2, 1, 4), torch.randn(2, 2), torch.randn(1, 2))
