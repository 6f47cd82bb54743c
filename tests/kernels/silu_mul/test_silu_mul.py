"""silu(gate) * up over the whole range of fp32."""

from __future__ import annotations

import pytest
import torch

from headstart.kernels.errors import KernelInputError
from headstart.kernels.silu_mul import silu_mul
from tests.kernels.compiled import LEVELS


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (3, 8), (5, 4867), (64, 1536)])
def test_equals_fp64(backend: str, size: tuple[int, int]) -> None:
    """The result is the formula's in fp64 within a few ulp, for gates from -60 to 60."""
    gate, up = (torch.rand(size) - 0.5) * 120, torch.randn(size)
    want = torch.nn.functional.silu(gate.double()) * up
    got = silu_mul(gate, up, backend=backend)
    torch.testing.assert_close(got.double(), want, atol=1e-30, rtol=1e-6)


@pytest.mark.parametrize("backend", LEVELS)
def test_extreme_gates(backend: str) -> None:
    """Far gates give 0 or up times gate; NaN and infinity behave as the formula's limits."""
    nan, inf = float("nan"), float("inf")
    gate = torch.tensor([[-1e30, -200.0, 0.0, 200.0, 1e30, nan, inf]])
    got = silu_mul(gate, torch.full((1, 7), 2.0), backend=backend)[0]
    assert (got[:3] == 0).all()
    assert got[3] == 400.0
    assert got[4] == torch.tensor(2e30)
    assert got[5].isnan()
    assert got[6] == inf


@pytest.mark.parametrize("backend", LEVELS)
def test_exponential_is_good_to_two_ulp(backend: str) -> None:
    """With up = -1 / gate the result is -1 / (1 + e^-gate): the error of e^x shows undiluted."""
    gate = torch.linspace(-80.0, -1.0, 100_001)[None]
    got = silu_mul(gate, torch.ones_like(gate), backend=backend).double()
    want = torch.nn.functional.silu(gate.double())
    assert ((got - want).abs() / want.abs()).max() < 4 * 2.0**-24 + 2 * 2.0**-23


def test_rows_do_not_change_a_bit() -> None:
    """A row alone has the bits it has among 64, at widths that are no multiple of a vector."""
    gate, up = torch.randn(64, 1003), torch.randn(64, 1003)
    whole = silu_mul(gate, up)
    for i in range(64):
        assert torch.equal(silu_mul(gate[i : i + 1], up[i : i + 1])[0], whole[i])


def test_shapes_must_agree() -> None:
    """Gate and up of different widths are refused."""
    with pytest.raises(KernelInputError, match="up"):
        silu_mul(torch.randn(2, 8), torch.randn(2, 9))
