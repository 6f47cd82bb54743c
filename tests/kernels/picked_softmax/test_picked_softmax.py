"""A token's probability among all: near fp64, the same bits on every path."""

from __future__ import annotations

import pytest
import torch

from headstart.kernels.errors import KernelInputError
from headstart.kernels.picked_softmax import best_log_softmax, picked_log_softmax, picked_softmax
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


@pytest.mark.parametrize("size", [1, 7, 17, 512, 1_029, 51_864])
def test_the_best_is_that_of_the_masked_row(size: int) -> None:
    """The entry that an argmax of the sum finds, and the bits of `picked_log_softmax` there, on
    every level; masks that differ from row to row."""
    logits = torch.randn(5, size) * 6
    masks = torch.zeros(3, size)
    if size > 3:
        masks[1, ::3] = -torch.inf
        masks[2, logits[2].argmax()] = masks[2, logits[4].argmax()] = -torch.inf
    which = [0, 1, 2, 1, 2]
    masked = logits + masks[which]
    want = masked.argmax(dim=-1)
    scores = picked_log_softmax(masked, want, backend="native")
    for name in LEVELS:
        assert best_log_softmax(logits, masks, which, backend=name) == (
            want.tolist(),
            scores.tolist(),
        )
    ids, near = best_log_softmax(logits, masks, which, backend="reference")
    assert ids == want.tolist()
    torch.testing.assert_close(torch.tensor(near), scores)


def test_of_equal_entries_the_first_is_the_best() -> None:
    """Within a vector, in different ones, and where one block ends."""
    for first, second in ((3, 4), (5, 900), (511, 512), (0, 1_499)):
        logits = torch.full((1, 1_500), -2.0)
        logits[0, [first, second]] = 7.0
        for name in (*LEVELS, "reference"):
            assert best_log_softmax(logits, torch.zeros(1, 1_500), [0], backend=name)[0] == [first]


def test_masks_that_do_not_fit_are_refused() -> None:
    """One a row, of the row's length, among those that are there."""
    logits, masks = torch.randn(2, 5), torch.zeros(2, 5)
    with pytest.raises(IndexError, match="of 2"):
        best_log_softmax(logits, masks, [0, 2])
    with pytest.raises(KernelInputError, match="one mask a row"):
        best_log_softmax(logits, masks, [0])
    with pytest.raises(KernelInputError, match="masks"):
        best_log_softmax(logits, masks[:, :4], [0, 1])
