"""Pixtral's vision encoder: pictures of any size, with two-dimensional rotary positions.

Each picture attends to itself alone, so encoding pictures one by one is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine.decoder.layers import RmsNorm, attend, compute_dtype, onto, rotate
from headstart.engine.decoder.projection import Projection, projection
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.engine.models.perception.passes import Passes, launched

EPS = 1e-5
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "gelu": F.gelu}


@dataclass(frozen=True, slots=True)
class PixtralSizes:
    """`activation`: a key of `ACTIVATIONS`."""

    width: int
    layers: int
    heads: int
    ffn: int
    patch_px: int
    rope_base: float = 10_000.0
    activation: str = "silu"


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    norm1: RmsNorm
    q: Projection
    k: Projection
    v: Projection
    out: Projection
    norm2: RmsNorm
    gate: Projection
    up: Projection
    down: Projection


class PixtralTower:
    """The encoder."""

    def __init__(self, tensors: Tensors, sizes: PixtralSizes, layers: int) -> None:
        """`layers`: number of the encoder's layers to run. Raises `BadWeights`."""
        self.sizes = sizes
        patch = (sizes.width, 3, sizes.patch_px, sizes.patch_px)
        weight = tensors.take("patch_conv.weight", *patch).flatten(1)
        self._patch = projection(weight)
        self._device, self._dtype = weight.device, compute_dtype(weight.dtype)
        self._norm = RmsNorm(tensors.take("ln_pre.weight", sizes.width), EPS)
        self._activation = ACTIVATIONS[sizes.activation]
        self._layers = [_layer(tensors, f"transformer.layers.{i}.", sizes) for i in range(layers)]
        self.passes: Passes = launched

    def encode(self, pixels: Tensor) -> Tensor:
        """One picture [3, height, width], whole patches -> [rows * columns, width]."""
        patch_px = self.sizes.patch_px
        rows, columns = (side // patch_px for side in pixels.shape[1:])
        cells = pixels.reshape(3, rows, patch_px, columns, patch_px)
        values = onto(cells.permute(1, 3, 0, 2, 4).reshape(rows * columns, -1), self._device)
        angles = self._angles(rows, columns)
        cos, sin = (onto(angle.to(self._dtype), self._device) for angle in angles)
        return self.passes("pixtral", self._encoded, values, cos, sin, rows=len(values))

    def _encoded(self, values: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        heads = self.sizes.heads
        x = self._norm(self._patch(values).to(self._dtype))
        for layer in self._layers:
            normed = layer.norm1(x)
            q, k, v = (
                torch.unflatten(p(normed), -1, (heads, -1)) for p in (layer.q, layer.k, layer.v)
            )
            q, k = (rotate(part, cos, sin).to(v.dtype) for part in (q, k))
            x = x + layer.out(attend(q[None], k[None], v[None])[0])
            normed = layer.norm2(x)
            x = x + layer.down(self._activation(layer.gate(normed)) * layer.up(normed))
        return x

    def _angles(self, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """cos and sin fp64 [rows * columns, head / 2]: every second frequency rotates with height,
        the others, behind them, with width."""
        head = self.sizes.width // self.sizes.heads
        rates = self.sizes.rope_base ** -(torch.arange(0, head, 2, dtype=torch.float64) / head)
        down, across = torch.meshgrid(
            torch.arange(rows, dtype=torch.float64),
            torch.arange(columns, dtype=torch.float64),
            indexing="ij",
        )
        by_height = torch.outer(down.flatten(), rates[0::2])
        by_width = torch.outer(across.flatten(), rates[1::2])
        angles = torch.cat([by_height, by_width], dim=1)
        return angles.cos(), angles.sin()


def fit_edge(height: int, width: int, longest_px: int, patch_px: int) -> tuple[int, int]:
    """The size in whole patches of a picture whose longer side is at most `longest_px`; smaller
    ones are not enlarged, but for the last patch of a side."""
    ratio = max(height / longest_px, width / longest_px)
    if ratio > 1:
        height, width = (max(1, math.floor(side / ratio)) for side in (height, width))
    return math.ceil(height / patch_px) * patch_px, math.ceil(width / patch_px) * patch_px


def _layer(tensors: Tensors, prefix: str, sizes: PixtralSizes) -> _Layer:
    width, ffn = sizes.width, sizes.ffn

    def linear(name: str, rows: int, cols: int) -> Projection:
        return projection(tensors.take(f"{prefix}{name}.weight", rows, cols))

    def norm(name: str) -> RmsNorm:
        return RmsNorm(tensors.take(f"{prefix}{name}.weight", width), EPS)

    return _Layer(
        norm1=norm("attention_norm"),
        q=linear("attention.q_proj", width, width),
        k=linear("attention.k_proj", width, width),
        v=linear("attention.v_proj", width, width),
        out=linear("attention.o_proj", width, width),
        norm2=norm("ffn_norm"),
        gate=linear("feed_forward.gate_proj", ffn, width),
        up=linear("feed_forward.up_proj", ffn, width),
        down=linear("feed_forward.down_proj", width, ffn),
    )
