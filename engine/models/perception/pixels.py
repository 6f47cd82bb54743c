"""Preprocessing for Qwen's vision encoders: resize to whole cells, normalise, cut into patches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine.models.perception.interface import VisionSpec

Rgb = npt.NDArray[np.uint8]  # [height, width, 3]

# Mean and standard deviation of red, green and blue in CLIP-style training.
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True, slots=True)
class Normalisation:
    """Per-channel normalisation of values in 0..1."""

    mean: tuple[float, ...] = CLIP_MEAN
    std: tuple[float, ...] = CLIP_STD

    def __call__(self, pixels: Tensor) -> Tensor:
        """[..., 3, height, width] of 0 to 255 -> normalised fp32."""
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (self.mean, self.std))
        return (pixels / 255.0 - mean) / std


def fit(height: int, width: int, spec: VisionSpec) -> tuple[int, int]:
    """The nearest size whose sides are whole cells, within the pixel budget."""
    side = spec.side_px
    high, wide = max(side, round(height / side) * side), max(side, round(width / side) * side)
    if high * wide > spec.max_pixels:
        scale = math.sqrt(height * width / spec.max_pixels)
        high = max(side, math.floor(height / scale / side) * side)
        wide = max(side, math.floor(width / scale / side) * side)
    elif high * wide < spec.min_pixels:
        scale = math.sqrt(spec.min_pixels / (height * width))
        high = math.ceil(height * scale / side) * side
        wide = math.ceil(width * scale / side) * side
    return high, wide


def resize(rgb: Rgb, height: int, width: int) -> Tensor:
    """Bicubic resize, rounded to whole numbers: [3, height, width] fp32, 0 to 255."""
    pixels = torch.from_numpy(np.array(rgb, copy=True)).permute(2, 0, 1)[None].float()
    if tuple(pixels.shape[2:]) != (height, width):
        pixels = F.interpolate(pixels, (height, width), mode="bicubic", antialias=True)
    return pixels[0].round().clamp(0, 255)


def patches(frames: Tensor, patch_px: int, merge: int) -> Tensor:
    """Frames [T, 3, height, width] -> [patches, 3 * T * patch_px ** 2]; cells of merge x merge
    patches are contiguous, row by row."""
    count, _, height, width = frames.shape
    rows, columns = height // (patch_px * merge), width // (patch_px * merge)
    x = frames.reshape(count, 3, rows, merge, patch_px, columns, merge, patch_px)
    # -> rows, columns, merge (down), merge (across), channel, time, y, x
    x = x.permute(2, 5, 3, 6, 1, 0, 4, 7)
    return x.reshape(rows * columns * merge * merge, -1)


def stack(pictures: Sequence[Rgb], spec: VisionSpec, normalisation: Normalisation) -> Tensor:
    """Pictures as [n, 3, height, width], all resized to the size that fits the first one."""
    high, wide = fit(pictures[0].shape[0], pictures[0].shape[1], spec)
    return normalisation(torch.stack([resize(rgb, high, wide) for rgb in pictures]))
