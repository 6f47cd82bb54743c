"""The vision encoders of Qwen2-VL and Qwen2.5 (VL and Omni): patches of two frames, merged two by
two.

No layer attends across time, so a unit of two frames never changes once encoded. Most layers of
Qwen2.5 attend within windows of 112 px only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine.decoder.layers import (
    LayerNorm,
    RmsNorm,
    attend_in_groups,
    compute_dtype,
    onto,
    rotate,
)
from headstart.engine.decoder.projection import Projection, projection
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.engine.models.perception.audio_tower import layer_norm
from headstart.engine.models.perception.passes import Passes, launched

ROPE_BASE = 10_000.0
EPS = 1e-6
CACHED_GRIDS, CACHED_CELLS = 16, 2048
"""Grids that are kept, and the merged patches of the largest of them: 2.7 MB of a head of 80."""
Norm = RmsNorm | LayerNorm


class Generation(StrEnum):
    """Whose layers: their operations, and the names of their weights."""

    QWEN2_VL = "qwen2_vl"
    QWEN2_5_VL = "qwen2_5_vl"
    QWEN2_5_OMNI = "qwen2_5_omni"  # as Qwen2.5-VL, with q, k and v stored apart


@dataclass(frozen=True, slots=True)
class VisionTowerSizes:
    """`window_px` 0: all layers attend to the whole picture; else only those in `whole` do."""

    depth: int
    width: int
    heads: int
    ffn: int
    output: int
    patch_px: int
    merge: int
    frames: int
    window_px: int = 0
    whole: frozenset[int] = frozenset()

    @property
    def side_px(self) -> int:
        return self.patch_px * self.merge


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    norm1: Norm
    q: Projection
    k: Projection
    v: Projection
    proj: Projection
    norm2: Norm
    mlp: Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Windows:
    """The order of merged patches for windowed attention, and the windows' lengths in patches."""

    order: Tensor  # int64 [rows * columns]
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """What is the same for all pictures of a size, on the encoder's device: the order of merged
    patches and its inverse, the rotation of each patch, and the windows' lengths."""

    order: Tensor
    back: Tensor
    cos: Tensor
    sin: Tensor
    lengths: list[int]


class VisionTower:
    """The encoder."""

    def __init__(self, tensors: Tensors, sizes: VisionTowerSizes, generation: Generation) -> None:
        """Raises `BadWeights`."""
        self.sizes = sizes
        patch = (sizes.width, 3, sizes.frames, sizes.patch_px, sizes.patch_px)
        weight = tensors.take("patch_embed.proj.weight", *patch).flatten(1)
        self._patch = projection(weight)
        self._device, self._dtype = weight.device, compute_dtype(weight.dtype)
        self._kept_grid = lru_cache(CACHED_GRIDS)(self._new_grid)
        old = generation is Generation.QWEN2_VL
        fused = generation is not Generation.QWEN2_5_OMNI
        build = _vl_block if old else partial(_gated_block, fused=fused)
        self._blocks = [build(tensors, f"blocks.{i}.", sizes) for i in range(sizes.depth)]
        self._norm: Norm = (
            layer_norm(tensors, "merger.ln_q", sizes.width, EPS)
            if old
            else RmsNorm(tensors.take("merger.ln_q.weight", sizes.width), EPS)
        )
        merged = sizes.width * sizes.merge**2
        self._merge = (
            _linear(tensors, "merger.mlp.0", merged, merged),
            _linear(tensors, "merger.mlp.2", sizes.output, merged),
        )
        self.passes: Passes = launched

    def encode(self, patches: Tensor, rows: int, columns: int) -> Tensor:
        """Patches [units * 4 * rows * columns, values] of one grid, patches of a cell contiguous ->
        [units * rows * columns, 4 * width]. `rows` and `columns` count merged patches."""
        units = len(patches) // (rows * columns * self.sizes.merge**2)
        grid = self._grid(rows, columns, units)
        return self.passes(
            ("vision", rows, columns),
            lambda values: self._layers(values, grid, units),
            onto(patches, self._device),
            rows=len(patches),
        )

    def _layers(self, patches: Tensor, grid: _Grid, units: int) -> Tensor:
        sizes = self.sizes
        cell = sizes.merge**2
        x = self._patch(patches).to(self._dtype)
        x = torch.unflatten(x, 0, (-1, cell))[grid.order].flatten(0, 1)
        whole = [len(patches) // units] * units
        for i, block in enumerate(self._blocks):
            seen = whole if not sizes.window_px or i in sizes.whole else grid.lengths
            x = x + self._attend(block, x, grid.cos, grid.sin, seen)
            x = x + block.mlp(block.norm2(x))
        return torch.unflatten(x, 0, (-1, cell))[grid.back].flatten(1)

    def project(self, features: Tensor) -> Tensor:
        """[n, 4 * width] -> [n, output]."""
        normed = self._norm(torch.unflatten(features, 1, (-1, self.sizes.width))).flatten(1)
        first, second = self._merge
        return second(F.gelu(first(normed)))

    @property
    def _window(self) -> int:
        """A window's side in merged patches."""
        return self.sizes.window_px // self.sizes.side_px

    def _grid(self, rows: int, columns: int, units: int) -> _Grid:
        """Large pictures' are made anew: it takes little of their time, and much memory to keep."""
        kept = rows * columns * units <= CACHED_CELLS
        return (self._kept_grid if kept else self._new_grid)(rows, columns, units)

    def _new_grid(self, rows: int, columns: int, units: int) -> _Grid:
        cell = self.sizes.merge**2
        windows = window_order(rows, columns, self._window, cell)
        order = torch.cat([windows.order + unit * rows * columns for unit in range(units)])
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        cos, sin = (
            torch.unflatten(angle, 0, (-1, cell))[windows.order].flatten(0, 1).repeat(units, 1)
            for angle in self._angles(rows, columns)
        )
        order, back, cos, sin = (part.to(self._device) for part in (order, back, cos, sin))
        return _Grid(order, back, cos, sin, list(windows.lengths) * units)

    def _attend(
        self, block: _Block, x: Tensor, cos: Tensor, sin: Tensor, lengths: list[int]
    ) -> Tensor:
        normed = block.norm1(x)
        q, k, v = (
            torch.unflatten(p(normed), 1, (self.sizes.heads, -1))
            for p in (block.q, block.k, block.v)
        )
        q, k = (rotate(part, cos, sin).to(v.dtype) for part in (q, k))
        return block.proj(attend_in_groups(q, k, v, lengths))

    def _angles(self, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """cos and sin [patches, head / 2]: half rotates with height, half with width."""
        merge, head = self.sizes.merge, self.sizes.width // self.sizes.heads
        half = head // 2
        rates = ROPE_BASE ** -(torch.arange(0, half, 2, dtype=torch.float64) / half)
        grid = torch.cartesian_prod(torch.arange(rows * merge), torch.arange(columns * merge))
        blocks = grid.view(rows, merge, columns, merge, 2).transpose(1, 2).reshape(-1, 2)
        angles = (blocks[:, :, None].double() * rates).flatten(1)
        return angles.cos().to(self._dtype), angles.sin().to(self._dtype)


def window_order(rows: int, columns: int, window: int, cell: int) -> Windows:
    """Merged patches of a grid in window order (`window` 0: a single window). Windows of one length
    are neighbours, since they are attended to in one call."""
    index = torch.arange(rows * columns).view(rows, columns)
    window = window or max(rows, columns)
    parts = [
        part.flatten()
        for band in torch.split(index, window, dim=0)
        for part in torch.split(band, window, dim=1)
    ]
    parts.sort(key=len, reverse=True)
    return Windows(torch.cat(parts), tuple(len(part) * cell for part in parts))


def _linear(tensors: Tensors, name: str, rows: int, cols: int) -> Projection:
    weight = tensors.take(f"{name}.weight", rows, cols)
    return projection(weight, tensors.take(f"{name}.bias", rows))


def _fused_qkv(tensors: Tensors, prefix: str, width: int) -> Iterator[Projection]:
    weights = tensors.take(f"{prefix}attn.qkv.weight", 3 * width, width).chunk(3)
    biases = tensors.take(f"{prefix}attn.qkv.bias", 3 * width).chunk(3)
    return (projection(weight, bias) for weight, bias in zip(weights, biases, strict=True))


def _gated_block(tensors: Tensors, prefix: str, sizes: VisionTowerSizes, fused: bool) -> _Block:
    width, ffn = sizes.width, sizes.ffn
    gate, up = (_linear(tensors, f"{prefix}mlp.{n}_proj", ffn, width) for n in ("gate", "up"))
    down = _linear(tensors, f"{prefix}mlp.down_proj", width, ffn)
    q, k, v = (
        _fused_qkv(tensors, prefix, width)
        if fused
        else (_linear(tensors, f"{prefix}attn.{n}", width, width) for n in ("q", "k", "v"))
    )
    return _Block(
        norm1=RmsNorm(tensors.take(f"{prefix}norm1.weight", width), EPS),
        q=q,
        k=k,
        v=v,
        proj=_linear(tensors, f"{prefix}attn.proj", width, width),
        norm2=RmsNorm(tensors.take(f"{prefix}norm2.weight", width), EPS),
        mlp=lambda x: down(F.silu(gate(x)) * up(x)),
    )


def _vl_block(tensors: Tensors, prefix: str, sizes: VisionTowerSizes) -> _Block:
    width, ffn = sizes.width, sizes.ffn
    q, k, v = _fused_qkv(tensors, prefix, width)
    up = _linear(tensors, f"{prefix}mlp.fc1", ffn, width)
    down = _linear(tensors, f"{prefix}mlp.fc2", width, ffn)

    def mlp(x: Tensor) -> Tensor:
        wide = up(x)
        return down(wide * torch.sigmoid(1.702 * wide))  # "quick" GELU

    return _Block(
        norm1=layer_norm(tensors, f"{prefix}norm1", width, EPS),
        q=q,
        k=k,
        v=v,
        proj=_linear(tensors, f"{prefix}attn.proj", width, width),
        norm2=layer_norm(tensors, f"{prefix}norm2", width, EPS),
        mlp=mlp,
    )
