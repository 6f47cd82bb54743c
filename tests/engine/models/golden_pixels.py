"""How pictures were rounded when the golden values were made.

A bicubic sum in fp32 that lies near a half is rounded to one whole number on one processor and to
the next on another, and one pixel moves the logits by more than the golden values' tolerance. So
the few places where the processor of the day rounded otherwise than fp64 are written beside the
values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from headstart.engine.models.perception.pixels import Rgb, resize

Halves = list[list[list[int]]]  # for each picture resized, in order: [channel, row, column] of each
_NEAR = 5e-3  # from a half: what bicubic sums of 0 to 255 in fp32 are off at most


def exact(rgb: Rgb, height: int, width: int) -> Tensor:
    """fp64 [3, height, width], neither rounded nor clamped."""
    pixels = torch.from_numpy(np.array(rgb, copy=True)).permute(2, 0, 1)[None].double()
    if tuple(pixels.shape[2:]) == (height, width):
        return pixels[0]
    size = (height, width)
    return torch.nn.functional.interpolate(pixels, size, mode="bicubic", antialias=True)[0]


def recorder(halves: Halves) -> Callable[[Rgb, int, int], Tensor]:
    """`resize` that notes in `halves` where it rounds otherwise than fp64 does."""

    def noting(rgb: Rgb, height: int, width: int) -> Tensor:
        made = resize(rgb, height, width)
        wanted = exact(rgb, height, width).round().clamp(0, 255)
        halves.append((made != wanted).nonzero().tolist())
        return made

    return noting


def player(halves: Iterable[list[list[int]]]) -> Callable[[Rgb, int, int], Tensor]:
    """`resize` that rounds as it was noted, and asserts that ours differs from that near a half
    only, and nowhere by more than one."""
    left = iter(halves)

    def as_written(rgb: Rgb, height: int, width: int) -> Tensor:
        sums = exact(rgb, height, width)
        written = sums.round()
        for place in next(left):
            at = tuple(place)
            written[at] = sums[at].floor() + sums[at].ceil() - written[at]
        written = written.clamp(0, 255).float()
        away = (resize(rgb, height, width) - written).abs()
        near_half = (sums - sums.floor() - 0.5).abs() < _NEAR
        assert (away <= near_half.float()).all()
        return written

    return as_written
