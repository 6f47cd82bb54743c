"""What frame policies judge by, of many frames at once: motion, content and sharpness.

    motion     mean absolute difference of luma to the frame before, 0 to 255
    content    the same of hue (0 to 179), saturation and value, and of these the mean
    sharpness  variance of the Laplacian of luma, borders mirrored

Luma and HSV are OpenCV's integers for 8-bit RGB, so all sums are integers: exact, in any order. A
program takes a tile of one frame; the tiles' sums are added in 64 bits afterwards.
"""

# mypy: allow-untyped-defs, allow-untyped-decorators, allow-incomplete-defs
from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.gpu.launch import Launch, blocks, expect, expect_contiguous, run

TILE = 1024  # pixels; squares of Laplacians, at most 1020 ** 2 each, add up to less than 2 ** 31
SUMS = 8
"""Per tile: |difference| of luma, hue, saturation and value; Laplacian, its square; two unused."""


@triton.jit
def _pixel(p, m):
    """RGB bytes at `p` as three int32."""
    red = tl.load(p, mask=m, other=0).to(tl.int32)
    green = tl.load(p + 1, mask=m, other=0).to(tl.int32)
    blue = tl.load(p + 2, mask=m, other=0).to(tl.int32)
    return red, green, blue


@triton.jit
def _luma(red, green, blue):
    return (red * 9798 + green * 19235 + blue * 3735 + 16384) >> 15


@triton.jit
def _hsv(red, green, blue, p_hue, p_saturation):
    """OpenCV's 8-bit HSV; the tables are its reciprocals."""
    value = tl.maximum(tl.maximum(red, green), blue)
    spread = value - tl.minimum(tl.minimum(red, green), blue)
    saturation = (spread * tl.load(p_saturation + value) + 2048) >> 12
    hue = tl.where(
        value == red,
        green - blue,
        tl.where(value == green, blue - red + 2 * spread, red - green + 4 * spread),
    )
    hue = (hue * tl.load(p_hue + spread) + 2048) >> 12
    return tl.where(hue < 0, hue + 180, hue), saturation, value


@triton.jit
def _frame_sums(
    p_frames,
    p_before,
    p_hue,
    p_saturation,
    p_out,
    height,
    width,
    tiles,
    first_known: tl.constexpr,
    T_PIXELS: tl.constexpr,
):
    """frames uint8 [F, H, W, 3] -> out int32 [F, tiles, 8]. Grid: tiles, frames."""
    i_tile, i_frame = tl.program_id(0), tl.program_id(1)
    pixels = height * width
    o = i_tile * T_PIXELS + tl.arange(0, T_PIXELS)
    m = o < pixels
    p_frame = p_frames + i_frame.to(tl.int64) * pixels * 3
    red, green, blue = _pixel(p_frame + o * 3, m)
    luma = _luma(red, green, blue)
    p_sum = p_out + (i_frame.to(tl.int64) * tiles + i_tile) * 8
    if (i_frame > 0) | first_known:
        p_last = p_frame - pixels * 3
        if first_known:
            p_last = tl.where(i_frame > 0, p_last, p_before)
        red1, green1, blue1 = _pixel(p_last + o * 3, m)
        hue, saturation, value = _hsv(red, green, blue, p_hue, p_saturation)
        hue1, saturation1, value1 = _hsv(red1, green1, blue1, p_hue, p_saturation)
        luma1 = _luma(red1, green1, blue1)
        tl.store(p_sum, tl.sum(tl.where(m, tl.abs(luma - luma1), 0), axis=0))
        tl.store(p_sum + 1, tl.sum(tl.where(m, tl.abs(hue - hue1), 0), axis=0))
        tl.store(p_sum + 2, tl.sum(tl.where(m, tl.abs(saturation - saturation1), 0), axis=0))
        tl.store(p_sum + 3, tl.sum(tl.where(m, tl.abs(value - value1), 0), axis=0))
    else:
        tl.store(p_sum, 0)
        tl.store(p_sum + 1, 0)
        tl.store(p_sum + 2, 0)
        tl.store(p_sum + 3, 0)
    # Neighbours beyond a border are those on the other side of its pixel.
    row, column = o // width, o % width
    above, below = tl.abs(row - 1), height - 1 - tl.abs(height - 2 - row)
    left, right = tl.abs(column - 1), width - 1 - tl.abs(width - 2 - column)
    above, below = tl.minimum(above, height - 1), tl.maximum(below, 0)
    left, right = tl.minimum(left, width - 1), tl.maximum(right, 0)
    laplacian = -4 * luma
    red, green, blue = _pixel(p_frame + (above * width + column) * 3, m)
    laplacian += _luma(red, green, blue)
    red, green, blue = _pixel(p_frame + (below * width + column) * 3, m)
    laplacian += _luma(red, green, blue)
    red, green, blue = _pixel(p_frame + (row * width + left) * 3, m)
    laplacian += _luma(red, green, blue)
    red, green, blue = _pixel(p_frame + (row * width + right) * 3, m)
    laplacian += _luma(red, green, blue)
    laplacian = tl.where(m, laplacian, 0)
    tl.store(p_sum + 4, tl.sum(laplacian, axis=0))
    tl.store(p_sum + 5, tl.sum(laplacian * laplacian, axis=0))


def hsv_tables(device: str | torch.device = "cpu") -> tuple[Tensor, Tensor]:
    """int32 [256] each: of hue and of saturation, reciprocals in units of 2^-12."""
    spread = torch.arange(256, dtype=torch.float64).clamp_min(1)
    hue = (180 * 4096 / (6 * spread)).round().int()
    saturation = (255 * 4096 / spread).round().int()
    hue[0] = saturation[0] = 0
    return hue.to(device), saturation.to(device)


def plan(
    frames: Tensor, tables: tuple[Tensor, Tensor], before: Tensor | None = None
) -> tuple[Tensor, list[Launch]]:
    """The tiles' sums int32 [F, tiles, SUMS] and the launch; arguments as of `frame_scores`."""
    expect(frames, "frames", (None, None, None, 3), torch.uint8)
    count, height, width, _ = frames.shape
    for table in tables:
        expect(table, "tables", (256,), torch.int32)
    if before is not None:
        expect(before, "before", (height, width, 3), torch.uint8)
    expect_contiguous(frames=frames, before=before)
    if not (height and width) or height * width >= 1 << 29:
        raise KernelInputError(f"frames: expected 1 to 2^29 pixels, got {height} x {width}")
    tiles = blocks(height * width, TILE)
    sums = torch.empty((count, tiles, SUMS), dtype=torch.int32, device=frames.device)
    launch = Launch(
        _frame_sums,
        (tiles, count),
        {
            "p_frames": frames,
            "p_before": frames if before is None else before,
            "p_hue": tables[0],
            "p_saturation": tables[1],
            "p_out": sums,
            "height": height,
            "width": width,
            "tiles": tiles,
        },
        {"first_known": before is not None, "T_PIXELS": TILE},
        threads=128,
    )
    return sums, [launch]


def scores_of(sums: Tensor, pixels: int) -> Tensor:
    """The tiles' sums -> fp64 [F, 3]: motion, content, sharpness."""
    whole = sums[..., :6].long().sum(dim=1).double() / pixels
    content = whole[:, 1:4].sum(dim=1) / 3
    variance = whole[:, 5] - whole[:, 4].square()
    return torch.stack((whole[:, 0], content, variance), dim=1)


def frame_scores(
    frames: Tensor, tables: tuple[Tensor, Tensor], before: Tensor | None = None
) -> Tensor:
    """frames uint8 [F, H, W, 3] RGB -> fp64 [F, 3]: motion, content and sharpness of each.

    `before` [H, W, 3] is the frame before the first; without it the first has no motion and no
    content (0). `tables` of `hsv_tables`. Raises KernelInputError.
    """
    sums, launches = plan(frames, tables, before)
    run(launches)
    return scores_of(sums, frames.shape[1] * frames.shape[2])
