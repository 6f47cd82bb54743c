"""A random little Whisper stack and batches for it."""

from __future__ import annotations

import torch
from torch import Tensor

from headstart.kernels.qlinear import QWeight, pack
from headstart.kernels.whisper_layers import Cross, Layer, Linear, Sequence, WhisperLayers

GROUP, INT8_MAX = 32, 127


def quantised(rows: int, cols: int) -> QWeight:
    """A random Q8_0 weight of Whisper's scale."""
    steps = torch.randint(-INT8_MAX, INT8_MAX + 1, (rows * cols // GROUP, GROUP)).to(torch.int8)
    scales = torch.full((len(steps), 1), 1.5 / INT8_MAX / cols**0.5).half()
    blocks = torch.cat((scales.view(torch.uint8), steps.view(torch.uint8)), dim=1)
    return pack("Q8_0", blocks.numpy(), rows, cols)


def linear(rows: int, cols: int, *, bias: bool = True) -> Linear:
    return Linear(quantised(rows, cols), torch.randn(rows) * 0.1 if bias else None)


def norm(width: int) -> tuple[Tensor, Tensor]:
    return 1 + 0.1 * torch.randn(width), 0.1 * torch.randn(width)


def stack(
    *, layers: int = 2, width: int = 128, heads: int = 2, causal: bool, cross: bool
) -> WhisperLayers:
    made = [
        Layer(
            self_norm=norm(width),
            qkv=linear(3 * width, width),
            out=linear(width, width, bias=False),
            mlp_norm=norm(width),
            up=linear(2 * width, width),
            down=linear(width, 2 * width),
            cross=Cross(norm(width), linear(width, width), linear(width, width)) if cross else None,
        )
        for _ in range(layers)
    ]
    return WhisperLayers(made, heads, causal=causal)


def sequence(
    model: WhisperLayers, rows: int, before: int = 0, keep: int = 0, heard: int = 0
) -> Sequence:
    """Random keys and values before the rows; the room behind them is NaN until it is written."""
    dim = model.width // model.heads
    k, v = (torch.randn(len(model.layers), model.heads, before + keep, dim) for _ in range(2))
    k[:, :, before:] = v[:, :, before:] = torch.nan
    if model.layers[0].cross is None:
        return Sequence(rows, k, v, before, keep)
    # As they come out of one matrix: positions first, heads inside.
    sound = torch.randn(2, len(model.layers), heard, model.heads, dim).transpose(2, 3)
    return Sequence(rows, k, v, before, keep, sound[0], sound[1])
