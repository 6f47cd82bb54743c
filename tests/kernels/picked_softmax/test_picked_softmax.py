"""A token's probability among all: near fp64, the same bits on every path."""

from __future__ import annotations

import pytest
import torch

from headstart.kernels.native import KernelInputError
from headstart.kernels.picked_softmax import picked_log_softmax, picked_softmax
from tests.kernels.compiled import LEVELS
from tests.numerics import assert_as_near


@pytest.mark.parametrize("size", [1, 7, 8, 512, 515, 51_864])
def test_is_as_near_to_fp64_as_torch(size: int) -> None:
    """The likeliest, some other and one that is blocked; widths that are no multiple of eight."""
    logits = torch.randn(3, size) * 6
    if size > 3:
        logits[:, 2] = -torch.inf
    ids = torch.stack([logits[0].argmax(), torch.tensor(size // 2), torch.tensor(min(2, size - 1))])
    for picked, whole in (
        (picked_log_softmax, torch.Tensor.log_softmax),
        (picked_softmax, torch.Tensor.softmax),
    ):
        got = picked(logits, ids, backend="native")
        assert all(torch.equal(got, picked(logits, ids, backend=name)) for name in LEVELS)
        exact = whole(logits.double(), -1).gather(1, ids[:, None])[:, 0]
        theirs = picked(logits, ids, backend="reference")
        sure = exact.isfinite()
        assert torch.equal(got.isfinite(), sure)
        assert_as_near(got[sure], theirs[sure], exact[sure])


def test_large_logits_do_not_overflow() -> None:
    """Logits of some thousands, and one far ahead of all others: log 1 is 0."""
    logits = torch.tensor([[5000.0, 4000.0, -5000.0]])
    assert picked_log_softmax(logits, torch.tensor([0]), backend="native").tolist() == [0.0]
    assert picked_softmax(logits, torch.tensor([1]), backend="native").tolist() == [0.0]
    assert picked_log_softmax(logits, torch.tensor([1]), backend="native").tolist() == [-1000.0]


def test_rows_do_not_change_a_bit() -> None:
    """A row alone has the bits it has among others."""
    logits, ids = torch.randn(9, 4_003), torch.arange(9)
    whole = picked_log_softmax(logits, ids, backend="native")
    for i in range(9):
        part = slice(i, i + 1)
        assert torch.equal(
            picked_log_softmax(logits[part], ids[part], backend="native")[0], whole[i]
        )


@pytest.mark.parametrize("ids", [[0, 5], [-1, 0]])
def test_ids_out_of_range_are_refused(ids: list[int]) -> None:
    """An id of no entry would be memory nobody wrote."""
    with pytest.raises(IndexError, match="of 5 logits"):
        picked_softmax(torch.randn(2, 5), torch.tensor(ids))
    with pytest.raises(KernelInputError, match="ids"):
        picked_softmax(torch.randn(2, 5), torch.tensor([1]))
