"""The public entry refuses what a kernel could not survive."""

from __future__ import annotations

import pytest
import torch

from headstart.kernels.errors import BackendError, KernelInputError
from headstart.kernels.qlinear import WeightShapeError, pack, qlinear, rows
from tests.kernels.qlinear.blocks import random_blocks


def test_memoryview_packs_like_an_array() -> None:
    """Bytes may come as the memoryview of a mapped file."""
    raw = random_blocks("Q8_0", 5, 64)
    assert torch.equal(
        pack("Q8_0", memoryview(raw.tobytes()), 5, 64).panels, pack("Q8_0", raw, 5, 64).panels
    )


def test_missing_bytes_are_refused() -> None:
    """A truncated weight names the bytes that were expected and those that came."""
    with pytest.raises(WeightShapeError, match="takes 340 bytes, got 272"):
        pack("Q8_0", random_blocks("Q8_0", 5, 64)[:4, :].reshape(-1)[:306].copy(), 5, 64)


@pytest.mark.parametrize("ids", [[-1], [5], [0, 1 << 40]])
def test_row_ids_out_of_range_are_refused(ids: list[int]) -> None:
    """An id below zero or past the last row is an IndexError, not memory of somebody else."""
    packed = pack("Q8_0", random_blocks("Q8_0", 5, 64), 5, 64)
    with pytest.raises(IndexError, match="5-row weight"):
        rows(packed, torch.tensor(ids))


def test_wrong_tensors_are_refused() -> None:
    """A wrong width, rank or dtype says what was expected and what came."""
    packed = pack("Q8_0", random_blocks("Q8_0", 5, 64), 5, 64)
    with pytest.raises(KernelInputError, match=r"x: expected float32 \[\*, 64\].*\[2, 32\]"):
        qlinear(torch.zeros(2, 32), packed)
    with pytest.raises(KernelInputError, match="float64"):
        qlinear(torch.zeros(2, 64, dtype=torch.float64), packed)
    with pytest.raises(KernelInputError, match="bias"):
        qlinear(torch.zeros(2, 64), packed, torch.zeros(4))


def test_unknown_backend_is_refused() -> None:
    """A mistyped backend is an error that lists the right ones."""
    packed = pack("Q8_0", random_blocks("Q8_0", 5, 64), 5, 64)
    with pytest.raises(BackendError, match=r"native, .*scalar, reference"):
        qlinear(torch.zeros(2, 64), packed, backend="navite")


def test_no_rows_in_no_rows_out() -> None:
    """An empty batch is allowed and gives an empty output."""
    packed = pack("Q8_0", random_blocks("Q8_0", 5, 64), 5, 64)
    assert qlinear(torch.zeros(0, 64), packed).shape == (0, 5)
    assert rows(packed, torch.zeros(0, dtype=torch.int64)).shape == (0, 64)
