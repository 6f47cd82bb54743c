"""What keys are divided by: exact, the same for both of a pair, and about as large as they get."""

from __future__ import annotations

import subprocess
import sys

import torch

from headstart.engine.decoder.key_scale import key_scale
from headstart.kernels.paged_attention.storage import decode, encode

KV_HEADS, HALF, HIDDEN = 2, 8, 64


def projection() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A random projection of keys with two large biases, and the norm in front of it."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(KV_HEADS * 2 * HALF, HIDDEN, generator=generator) / 8
    bias = torch.randn(len(weight), generator=generator)
    bias[3], bias[20] = 150.0, -90.0
    return weight, bias, torch.rand(HIDDEN, generator=generator) + 0.5


def test_scales_are_powers_of_two_and_equal_in_both_halves() -> None:
    """So no product changes, and rotating before or after the division gives the same."""
    scale = key_scale(*projection(), KV_HEADS)
    assert scale.shape == (KV_HEADS, 2 * HALF)
    assert torch.equal(scale.log2(), scale.log2().round())
    assert torch.equal(scale[:, :HALF], scale[:, HALF:])


def test_a_weight_of_zeros_has_a_scale() -> None:
    """Nothing is divided by zero, and no scale leaves what fp16 can hold."""
    scale = key_scale(torch.zeros(4, 8), None, torch.ones(8), 1)
    assert (scale > 0).all()
    huge = key_scale(torch.full((4, 8), 1e30), None, torch.ones(8), 1)
    assert torch.equal(huge, torch.full((1, 4), 65536.0))


def test_int8_keys_are_several_times_as_exact() -> None:
    """Keys whose biases drown the rest in eight bits: divided, coded and multiplied again, the
    other channels' error is a tenth of what it is otherwise."""
    weight, bias, norm = projection()
    inputs = torch.randn(200, HIDDEN, generator=torch.Generator().manual_seed(2)) * norm
    keys = (inputs @ weight.T + bias).view(200, KV_HEADS, 2 * HALF)
    scale = key_scale(weight, bias, norm, KV_HEADS)
    small = scale < 16
    plain = decode(encode(keys, torch.int8)) - keys
    scaled = decode(encode(keys / scale, torch.int8)) * scale - keys
    assert scaled[:, small].std() < 0.1 * plain[:, small].std()


def test_sizes_are_counted_without_the_compiler() -> None:
    """On tensors without data it has its shape, and torch does not import a second's worth."""
    code = (
        "import sys, torch; from headstart.engine.decoder.key_scale import key_scale\n"
        "empty = torch.empty(16, 8, device='meta')\n"
        "print(*key_scale(empty, empty[:, 0], empty[0], 2).shape, 'torch._dynamo' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )
    assert run.stdout.split() == ["2", "8", "False"]
