"""Root-mean-square norm: near the reference, row by row, bit for bit whatever the batch."""

from __future__ import annotations

import pytest
import torch

from headstart.kernels.errors import KernelInputError
from headstart.kernels.rms_norm import rms_norm
from tests.kernels.compiled import LEVELS


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize("size", [1, 7, 32, 33, 576, 896, 4099])
def test_equals_fp64(backend: str, size: int) -> None:
    """The result is the formula's in fp64, to fp32 rounding; eps keeps a row of zeros zero."""
    torch.manual_seed(0)
    x, weight = torch.randn(5, size), torch.randn(size)
    x[3] = 0.0
    wide = x.double()
    want = wide / (wide.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt() * weight
    got = rms_norm(x, weight, 1e-6, backend=backend)
    torch.testing.assert_close(got.double(), want, atol=1e-7, rtol=2e-6)


def test_rows_and_threads_do_not_change_a_bit() -> None:
    """A row alone has the bits it has among 64, on one thread or three."""
    x, weight = torch.randn(64, 896), torch.randn(896)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        whole = rms_norm(x, weight, 1e-6)
        torch.set_num_threads(1)
        for i in range(64):
            assert torch.equal(rms_norm(x[i : i + 1], weight, 1e-6)[0], whole[i])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize("size", [1, 33, 896])
def test_nothing_is_written_behind_the_last_row(
    backend: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies behind the result in memory stays as it is."""
    made: list[torch.Tensor] = []

    def with_a_guard(shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:
        rows, width = shape
        made.append(torch.full((rows * width + 16,), 7.0, dtype=dtype))
        return made[-1][: rows * width].view(rows, width)

    x, weight = torch.randn(3, size), torch.randn(size)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "empty", with_a_guard)
        rms_norm(x, weight, 1e-6, backend=backend)
    assert made[-1][3 * size :].tolist() == [7.0] * 16


def test_wrong_weight_is_refused() -> None:
    """A weight of another width is named."""
    with pytest.raises(KernelInputError, match="weight"):
        rms_norm(torch.randn(2, 8), torch.randn(9), 1e-6)
