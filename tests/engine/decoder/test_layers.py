"""Operations and what they carry their sums in."""

from __future__ import annotations

import pytest
import torch

from headstart.engine.decoder import layers
from headstart.engine.decoder.layers import (
    Linear,
    RmsNorm,
    attend,
    attend_in_groups,
    compute_dtype,
    rotate,
)
from tests.numerics import assert_as_near


def test_only_the_weights_are_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bf16 product over 4,096 inputs is, to fp32's own precision, the exact product with the
    rounded weights: inputs, sums and outputs are not rounded to bf16, whose step is 4e-3. It is the
    same however few rows of the weights are widened at a time."""
    torch.manual_seed(0)
    x = torch.randn(3, 4_096)
    linear = Linear((torch.randn(70, 4_096) / 64).bfloat16(), torch.randn(70).bfloat16())
    assert linear.bias is not None
    exact = x.double() @ linear.weight.double().T + linear.bias.double()
    plain = x @ linear.weight.float().T + linear.bias.float()
    for stripe in (layers.STRIPE_WEIGHTS, 9 * 4_096, 1):
        monkeypatch.setattr(layers, "STRIPE_WEIGHTS", stripe)
        assert_as_near(linear(x), plain, exact)


def test_results_are_carried_in_fp32_or_better() -> None:
    """bf16 weights give fp32, fp64 stay fp64."""
    x = torch.randn(3, 8)
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        linear = Linear(torch.randn(4, 8).to(dtype), torch.randn(4).to(dtype))
        out = linear(x)
        assert out.dtype == compute_dtype(dtype)
        assert linear.bias is not None
        exact = x.double() @ linear.weight.double().T + linear.bias.double()
        plain = x @ linear.weight.float().T + linear.bias.float()
        assert_as_near(out, plain, exact)


def test_groups_see_themselves_only() -> None:
    """Groups of 3, 3, 1 and 5 rows in one call are the four by themselves."""
    q, k, v = torch.randn(3, 12, 2, 8).double()
    lengths = [3, 3, 1, 5]
    wanted = [
        attend(a[None], b[None], c[None])[0]
        for a, b, c in zip(*(t.split(lengths) for t in (q, k, v)), strict=True)
    ]
    assert torch.allclose(attend_in_groups(q, k, v, lengths), torch.cat(wanted), atol=1e-12)


def test_turning_by_nothing_changes_nothing_and_keeps_lengths() -> None:
    """cos 1, sin 0 is the identity; any angle keeps a head's norm."""
    x = torch.randn(2, 3, 8)
    angle = torch.rand(2, 4)
    assert torch.equal(rotate(x, torch.ones(2, 4), torch.zeros(2, 4)), x)
    turned = rotate(x, angle.cos(), angle.sin())
    lengths = x.double().norm(dim=-1)
    assert_as_near(turned.norm(dim=-1), lengths.float(), lengths)


def test_a_norm_scales_to_its_weight() -> None:
    """Root mean square 1, times the weight."""
    out = RmsNorm(torch.full((64,), 2.0), 0.0)(torch.randn(5, 64) * 30)
    squares = torch.full((5,), 4.0)
    assert_as_near(out.square().mean(-1), squares, squares.double())
