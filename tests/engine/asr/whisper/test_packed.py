"""headstart.engine.asr.whisper.packed: int8 against fp32."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from headstart.engine.asr.whisper.packed import PackedLinear, pack_linears, pack_q8_0
from headstart.kernels.qlinear import QWeight, dequantize


def _weight(count: int = 83, width: int = 64) -> torch.Tensor:
    weight = torch.randn(count, width, generator=torch.Generator().manual_seed(0))
    weight[5] = 0.0  # an all-zero group has no scale
    return weight


def _packed(linear: nn.Linear) -> PackedLinear:
    return PackedLinear(pack_q8_0(linear.weight), linear.bias)


def test_values_are_within_half_a_step() -> None:
    """A packed value differs from its fp32 by at most half a step, and the scale's fp16."""
    weight = _weight()
    packed = dequantize(pack_q8_0(weight))
    step = weight.view(len(weight), -1, 32).abs().amax(dim=-1, keepdim=True) / 63
    bound = (step * 0.5 + step * 63 * 2**-11 + 1e-7).expand(-1, -1, 32).reshape(weight.shape)
    assert ((packed - weight).abs() <= bound).all()


@pytest.mark.parametrize("has_bias", [True, False])
def test_linear_is_close(has_bias: bool) -> None:
    """Outputs are within 2 % of fp32's, in norm, with and without a bias."""
    linear = nn.Linear(64, 83, bias=has_bias).requires_grad_(False)
    x = torch.randn(7, 64)
    exact, packed = linear(x), _packed(linear)(x)
    assert (packed - exact).norm() < 0.02 * exact.norm()


@pytest.mark.usefixtures("our_kernels")
def test_a_row_does_not_depend_on_its_neighbours() -> None:
    """A guess checked with others is checked as if alone, to the last bit."""
    packed = _packed(nn.Linear(64, 83).requires_grad_(False))
    x = torch.randn(5, 64)
    alone = torch.cat([packed(x[i : i + 1]) for i in range(5)])
    assert torch.equal(packed(x), alone)


def test_every_linear_is_replaced_and_nothing_else() -> None:
    """Packing goes into the depth and leaves norms alone."""
    module = nn.Sequential(nn.Linear(32, 32), nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64)))
    module.requires_grad_(False)
    x = torch.randn(3, 32)
    before = module(x)
    asked = []

    def packed(name: str, linear: nn.Linear) -> QWeight:
        asked.append(name)
        return pack_q8_0(linear.weight)

    pack_linears(module, packed, "whole")
    assert asked == ["whole.0", "whole.1.1"]
    kinds = [type(part) for part in module.modules() if not isinstance(part, nn.Sequential)]
    assert kinds == [PackedLinear, nn.LayerNorm, PackedLinear]
    assert (module(x) - before).norm() < 0.03 * before.norm()
