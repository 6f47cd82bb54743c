"""Pooling: the embeddings of a picture, or of several pictures in sequence, become fewer.

It works on what the language model would read (behind the projector), so it fits any family, and it
sees only the frames that it pools: streamed and offline give the same numbers, and a token that was
read never changes.

Every token that is left keeps a place in the picture. A merged token has that of the cell it was
merged into, and the last cell always stays, so the words behind a picture have the position that
they would have behind all of its tokens. Mean and learned tokens form a grid of their own and count
like those of a smaller picture, as Qwen's rule has it for every size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

Cell = tuple[int, int]  # row, column

# Merging is repeated until few enough tokens are left. A round that merges many at a time merges
# pairs that are less alike (measured in docs/picture-tokens.md).
_ROUND_SHARE = 8
# Cosine of tokens that differ by rounding only, as all tokens of a dark picture do.
_EQUAL = 1 - 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """Embeddings [tokens, hidden] of one unit, with the cell of each token in a grid of `rows` by
    `columns`. As a model makes them there is one for each cell, row by row."""

    vectors: Tensor
    cells: tuple[Cell, ...]
    rows: int
    columns: int


class Pooling(Protocol):
    """A way to pool."""

    def pool(self, units: Sequence[Embedded], max_tokens: int) -> Embedded:
        """At most `max_tokens` tokens of `units`, at least one of them, in order of time."""
        ...


class MeanPooling:
    """The mean over equal parts of the picture, and over the units."""

    def pool(self, units: Sequence[Embedded], max_tokens: int) -> Embedded:
        """The largest grid of the picture's shape with at most `max_tokens` cells. Units of other
        sizes than the first are averaged at its size."""
        rows, columns = coarser(units[0].rows, units[0].columns, max_tokens)
        means = [_mean_grid(unit, rows, columns) for unit in units]
        return _on_grid(torch.stack(means).mean(dim=0), rows, columns)


class SimilarityMerging:
    """Tokens that are most alike become one, their mean (as in ToMe, Bolya et al. 2023, but behind
    the encoder, and with mutual nearest neighbours in place of two sets). Nothing is trained."""

    def pool(self, units: Sequence[Embedded], max_tokens: int) -> Embedded:
        vectors = torch.cat([unit.vectors for unit in units])
        cells = [cell for unit in units for cell in unit.cells]
        merged = merge_similar(vectors, max_tokens)
        rows, columns = (max(getattr(u, side) for u in units) for side in ("rows", "columns"))
        left = tuple(cells[i] for i in merged.kept.tolist())
        return Embedded(merged.vectors, left, rows, columns)


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """`kept` int64 [m]: the tokens that others were merged into, in order; `owner` int64 [n]: for
    each token the number of the one that it became part of."""

    vectors: Tensor
    kept: Tensor
    owner: Tensor


def merge_similar(vectors: Tensor, max_tokens: int, round_share: int = _ROUND_SHARE) -> Merged:
    """Merge [n, hidden] into at most `max_tokens`, at least one; each is the mean of its tokens.

    In each round tokens pair up that are each other's most similar one (by cosine), and the best
    pairs are merged, at most 1 / `round_share` of the tokens; the later one of a pair stays. Equal
    tokens pair up in order: of many that are equal, hardly any two would be each other's most
    similar one.
    """
    count = len(vectors)
    owner = kept = torch.arange(count)
    sizes = torch.ones(count, dtype=vectors.dtype)
    left, target = vectors, torch.arange(count)
    alike = torch.full((count, count), -torch.inf)
    while True:
        units = F.normalize(left.float(), dim=1)
        _compare(alike, units, target)
        if len(left) <= max(max_tokens, 1):
            return Merged(left, kept, owner)
        best, other = alike.max(dim=1)
        own = torch.arange(len(left))
        pairs = own[(other[other] == own) & (own < other)]
        most = min(len(left) - max(max_tokens, 1), max(len(left) // round_share, 1))
        if len(pairs) < most:
            first, second = _equal_pairs(alike)
            if len(first) > len(pairs):
                pairs, other[first] = first, second
        source = pairs[best[pairs].argsort(descending=True, stable=True)[:most]]
        target = other[source]
        total = sizes[source] + sizes[target]
        left = left.clone()
        left[target] = (
            left[source] * sizes[source, None] + left[target] * sizes[target, None]
        ) / total[:, None]
        sizes[target] = total
        stays = torch.ones(len(left), dtype=torch.bool)
        stays[source] = False
        number = stays.cumsum(0) - 1
        number[source] = number[target]
        owner, kept, target = number[owner], kept[stays], number[target]
        left, sizes, alike = left[stays], sizes[stays], alike[stays][:, stays]


def _compare(alike: Tensor, units: Tensor, rows: Tensor) -> None:
    """Compute `rows` of the cosines [n, n] anew, equal on both sides of the diagonal; a token is
    not compared with itself."""
    alike[rows] = units[rows] @ units.T
    alike[:, rows] = alike[rows].T
    alike[rows[:, None], rows] = torch.minimum(*_both(alike[rows[:, None], rows]))
    alike.fill_diagonal_(-torch.inf)


def _equal_pairs(alike: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of tokens that are equal but for rounding: the earlier ones, and the later ones."""
    equal = alike >= _EQUAL
    own = torch.arange(len(alike))
    group = torch.where(equal.any(dim=1), torch.minimum(equal.int().argmax(dim=1), own), own)
    ordered, order = group.sort(stable=True)
    starts = torch.ones(len(own), dtype=torch.bool)
    starts[1:] = ordered[1:] != ordered[:-1]
    place = own - torch.where(starts, own, 0).cummax(0).values  # within its group
    second = own[place % 2 == 1]
    return order[second - 1], order[second]


def _both(square: Tensor) -> tuple[Tensor, Tensor]:
    return square, square.T


def coarser(rows: int, columns: int, max_tokens: int) -> tuple[int, int]:
    """Sides of the largest grid of about the same shape with at most `max_tokens` cells."""
    if rows * columns <= max_tokens:
        return rows, columns
    scale = math.sqrt(max_tokens / (rows * columns))
    high = min(max(math.floor(rows * scale), 1), max_tokens)
    wide = min(max(math.floor(columns * scale), 1), max_tokens // high)
    return min(max(high, max_tokens // columns), rows, max_tokens // wide), wide


def _mean_grid(unit: Embedded, rows: int, columns: int) -> Tensor:
    """The means of a whole grid over `rows` by `columns` parts: [rows * columns, hidden]."""
    if (unit.rows, unit.columns) == (rows, columns):
        return unit.vectors
    grid = unit.vectors.T.reshape(1, -1, unit.rows, unit.columns)
    return F.adaptive_avg_pool2d(grid, (rows, columns))[0].flatten(1).T


def _on_grid(vectors: Tensor, rows: int, columns: int) -> Embedded:
    cells = tuple((row, column) for row in range(rows) for column in range(columns))
    return Embedded(vectors.contiguous(), cells, rows, columns)


def on_square(vectors: Tensor) -> Embedded:
    """Tokens without places of their own, on the squarest grid of so many cells."""
    rows = max(side for side in range(1, math.isqrt(len(vectors)) + 1) if not len(vectors) % side)
    return _on_grid(vectors, rows, len(vectors) // rows)
