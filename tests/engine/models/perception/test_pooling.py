"""Fewer tokens of a picture: what is left, where it lies, and what it is made of."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from headstart.engine.models.perception import pooling
from headstart.engine.models.perception.pooling import (
    Embedded,
    MeanPooling,
    SimilarityMerging,
    coarser,
    merge_similar,
)


def grid(rows: int, columns: int, seed: int = 0) -> Embedded:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(rows * columns, 8, generator=generator, dtype=torch.float64)
    cells = tuple((row, column) for row in range(rows) for column in range(columns))
    return Embedded(vectors, cells, rows, columns)


def plain_merge(vectors: Tensor, max_tokens: int, round_share: int) -> list[list[int]]:
    """The groups that `merge_similar` makes, pair by pair in plain Python."""
    groups = [[i] for i in range(len(vectors))]
    while len(groups) > max_tokens:
        means = [vectors[group].mean(dim=0) for group in groups]
        nearest = []
        for i, mean in enumerate(means):
            others = [j for j in range(len(means)) if j != i]
            cosines = [float(torch.cosine_similarity(mean, means[j], dim=0)) for j in others]
            nearest.append((max(cosines), others[cosines.index(max(cosines))]))
        pairs = [
            (alike, i, j) for i, (alike, j) in enumerate(nearest) if i < j and nearest[j][1] == i
        ]
        most = min(len(groups) - max_tokens, max(len(groups) // round_share, 1))
        chosen = sorted(pairs, key=lambda pair: -pair[0])[:most]
        for _, source, target in chosen:
            groups[target] = groups[target] + groups[source]
        gone = {source for _, source, _ in chosen}
        groups = [group for i, group in enumerate(groups) if i not in gone]
    return [sorted(group) for group in groups]


@pytest.mark.parametrize("seed", range(4))
def test_merging_is_the_plain_rule(seed: int) -> None:
    """Random sizes: the same groups, each the mean of its tokens, kept in order."""
    chance = random.Random(seed)
    unit = grid(chance.randint(2, 6), chance.randint(2, 7), seed)
    most, share = chance.randint(1, len(unit.vectors)), chance.choice([2, 8, 100])
    merged = merge_similar(unit.vectors, most, share)
    wanted = plain_merge(unit.vectors, most, share)
    groups = [(merged.owner == i).nonzero().flatten().tolist() for i in range(len(merged.vectors))]
    assert groups == wanted
    means = torch.stack([unit.vectors[group].mean(dim=0) for group in wanted])
    assert (merged.vectors - means).abs().max() < 1e-12
    assert merged.kept.tolist() == sorted(merged.kept.tolist())
    assert all(int(kept) in group for kept, group in zip(merged.kept, groups, strict=True))


@pytest.mark.parametrize("most", [1, 2, 7, 41])
def test_the_last_cell_stays(most: int) -> None:
    """So what follows the picture has the position it would have without merging."""
    unit = grid(6, 7)
    pooled = SimilarityMerging().pool([unit], most)
    assert len(pooled.vectors) == len(pooled.cells) == most
    assert pooled.cells[-1] == (5, 6)
    assert (pooled.rows, pooled.columns) == (6, 7)


def test_equal_tokens_merge_without_a_loss() -> None:
    """A picture of three colours needs three tokens."""
    colours = torch.randn(3, 8, dtype=torch.float64)
    which = torch.tensor([0, 0, 1, 1, 0, 2, 2, 2, 1, 0, 1, 2])
    merged = merge_similar(colours[which], 3)
    assert (merged.vectors[merged.owner] - colours[which]).abs().max() < 1e-12


LOOKS = {  # which of two pictures a cell looks like
    "dark": [0] * 256,
    "chequered": [0, 1] * 128,
    "half": [0] * 128 + [1] * 128,
}


@pytest.mark.parametrize("noise", [0.0, 1e-7])
@pytest.mark.parametrize("look", LOOKS)
def test_a_picture_of_equal_tokens_takes_no_more_rounds(
    look: str, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A covered camera: an eighth of the tokens goes in each round, as with any picture, whether or
    not they differ by rounding. The last cell stays."""
    rounds: list[int] = []
    compare = pooling._compare

    def counted(alike: Tensor, units: Tensor, rows: Tensor) -> None:
        rounds.append(len(units))
        compare(alike, units, rows)

    monkeypatch.setattr(pooling, "_compare", counted)
    seeded = torch.Generator().manual_seed(0)
    vectors = torch.randn(2, 64, generator=seeded)[torch.tensor(LOOKS[look])]
    merged = merge_similar(vectors + noise * torch.randn(256, 64, generator=seeded), 16)
    assert len(rounds) < 30
    assert int(merged.kept[-1]) == 255
    assert torch.allclose(merged.vectors[merged.owner], vectors, atol=1e-4)


def test_groups_of_frames_merge_across_time() -> None:
    """Four equal frames have no more than one of them."""
    unit = grid(3, 3)
    pooled = SimilarityMerging().pool([unit] * 4, 9)
    assert torch.allclose(pooled.vectors.sort(dim=0).values, unit.vectors.sort(dim=0).values)


def test_means_of_a_grid() -> None:
    """Two by two cells to one, and four frames to one."""
    units = [grid(4, 6, seed) for seed in range(4)]
    pooled = MeanPooling().pool(units, 6)
    assert (pooled.rows, pooled.columns) == (2, 3)
    assert pooled.cells == tuple((row, column) for row in range(2) for column in range(3))
    whole = torch.stack([unit.vectors.view(4, 6, 8) for unit in units])
    for token, (row, column) in zip(pooled.vectors, pooled.cells, strict=True):
        part = whole[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        assert (part.reshape(-1, 8).mean(dim=0) - token).abs().max() < 1e-12


@pytest.mark.parametrize("seed", range(50))
def test_a_coarser_grid_fits(seed: int) -> None:
    """Any shape: within the budget, no side longer, at least half of what there is room for."""
    chance = random.Random(seed)
    rows, columns, most = chance.randint(1, 60), chance.randint(1, 60), chance.randint(1, 400)
    high, wide = coarser(rows, columns, most)
    assert 1 <= high <= rows
    assert 1 <= wide <= columns
    assert high * wide <= most
    assert 2 * high * wide >= min(most, rows * columns)
