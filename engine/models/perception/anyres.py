"""Stills of any shape in LLaVA-OneVision: the whole picture in one tile, then tiles in full size.

Of the canvases the model supports, the one that keeps most of the picture's pixels and wastes least
is used. The picture is fitted into it, and the canvas is cut into tiles of the encoder's size. The
tiles' features are joined again, empty margins are removed, and each row ends with the model's
newline embedding. Before them come the features of the whole picture, squeezed into one tile.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine.errors import BadWeights, UnsupportedModel
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.perception.interface import StillSpec
from headstart.engine.models.perception.pixels import Rgb, resize

_TILES_A_SIDE = 6  # of the largest canvases of published models
_SLACK = 1.1  # tiles are scaled down if they exceed the token limit by this factor squared
_DIGITS = 7  # lengths are rounded to this before truncation: 26.99999999 is 27

Size = tuple[int, int]  # height, width


@dataclass(frozen=True, slots=True)
class Anyres:
    """`canvases`: sizes in pixels, multiples of a tile. `tile_px`, `tile_tokens`: a tile's side in
    pixels and in tokens. `max_tiles`: limit of all tiles' tokens, in whole tiles."""

    canvases: tuple[Size, ...]
    tile_px: int
    tile_tokens: int
    max_tiles: int

    @classmethod
    def of(cls, config: Config, tile_px: int, tile_tokens: int) -> Anyres:
        """From a model's config.json. Raises `BadWeights` for canvases that are not whole tiles,
        or `UnsupportedModel` for another method."""
        every = [
            [rows * tile_px, columns * tile_px]
            for rows in range(1, _TILES_A_SIDE + 1)
            for columns in range(1, _TILES_A_SIDE + 1)
        ]
        sizes = config.values.get("image_grid_pinpoints") or every
        if not all(_whole_tiles(size, tile_px) for size in sizes):
            expected = f"pairs of multiples of {tile_px}"
            raise BadWeights(config.path, "field image_grid_pinpoints", expected, repr(sizes))
        way = config.text("vision_aspect_ratio", "anyres_max_9")
        most = re.fullmatch(r"anyres_max_([1-9]\d*)", way)
        if most is None:
            raise UnsupportedModel(config.path, "vision_aspect_ratio", ["anyres_max_<tiles>"], way)
        canvases = tuple((int(height), int(width)) for height, width in sizes)
        return cls(canvases, tile_px, tile_tokens, int(most[1]))

    @property
    def still(self) -> StillSpec:
        """Token cost of stills: one tile for the whole picture, then tiles with row newlines."""
        whole = self.tile_tokens**2
        largest = max(height * width for height, width in self.canvases)
        return StillSpec(largest, self.tile_px**2, whole + self.tile_tokens, whole)

    def canvas(self, size: Size) -> Size:
        """The canvas for a picture of `size`: keeps most pixels, then wastes least."""

        def worth(canvas: Size) -> tuple[int, int]:
            scale = min(canvas[1] / size[1], canvas[0] / size[0])
            scaled = int(size[1] * scale) * int(size[0] * scale)
            kept = min(scaled, size[0] * size[1])
            return kept, kept - canvas[0] * canvas[1]

        return max(self.canvases, key=worth)

    def cut(self, rgb: Rgb) -> Tensor:
        """[1 + tiles, 3, tile_px, tile_px] fp32, 0 to 255: the whole picture squeezed into one
        tile, and the tiles of its canvas, row by row, with black margins."""
        size, tile = (rgb.shape[0], rgb.shape[1]), self.tile_px
        high, wide = self.canvas(size)
        height, width = _inside(size, (high, wide))
        top, left = (high - height) // 2, (wide - width) // 2
        margins = (left, wide - width - left, top, high - height - top)
        canvas = F.pad(resize(rgb, height, width), margins)
        tiles = canvas.reshape(3, high // tile, tile, wide // tile, tile).permute(1, 3, 0, 2, 4)
        return torch.cat([resize(rgb, tile, tile)[None], tiles.flatten(0, 1)])

    def join(self, features: Tensor, size: Size, newline: Tensor) -> Tensor:
        """Join embeddings [1 + tiles, tile_tokens ** 2, hidden] of a picture of `size` cut by
        `cut`, with `newline` [1, hidden] behind each row: [n, hidden]."""
        high, wide = self.canvas(size)
        side = self.tile_tokens
        grid = features[1:].reshape(high // self.tile_px, wide // self.tile_px, side, side, -1)
        rows = grid.permute(4, 0, 2, 1, 3).flatten(3, 4).flatten(1, 2)  # [hidden, height, width]
        rows = self._thinned(_without_margins(rows, size))
        ends = newline[0, :, None, None].expand(-1, rows.shape[1], 1)
        tiled = torch.cat([rows, ends], dim=2).flatten(1).T
        return torch.cat([features[0], tiled])

    def _thinned(self, rows: Tensor) -> Tensor:
        """[hidden, height, width], scaled down if it exceeds the token limit."""
        height, width = rows.shape[1:]
        ratio = math.sqrt(height * width / (self.max_tiles * self.tile_tokens**2))
        if ratio <= _SLACK:
            return rows
        fewer = (int(height // ratio), int(width // ratio))
        return F.interpolate(rows[None], fewer, mode="bilinear")[0]


def _whole_tiles(size: object, tile_px: int) -> bool:
    if not isinstance(size, list) or len(size) != 2:
        return False
    return all(isinstance(n, int) and n > 0 and n % tile_px == 0 for n in size)


def _inside(size: Size, canvas: Size) -> Size:
    """`size` scaled to fit into the canvas, keeping the aspect ratio."""
    down, across = canvas[0] / size[0], canvas[1] / size[1]
    if across < down:
        return min(math.ceil(size[0] * across), canvas[0]), canvas[1]
    return canvas[0], min(math.ceil(size[1] * down), canvas[1])


def _without_margins(rows: Tensor, size: Size) -> Tensor:
    """[hidden, height, width] of a canvas without the margins that hold no part of the picture."""
    height, width = rows.shape[1:]
    if size[1] / size[0] > width / height:
        margin = (height - _whole(size[0] * (width / size[1]))) // 2
        return rows[:, margin : height - margin]
    margin = (width - _whole(size[1] * (height / size[0]))) // 2
    return rows[:, :, margin : width - margin]


def _whole(length: float) -> int:
    return int(round(length, _DIGITS))
