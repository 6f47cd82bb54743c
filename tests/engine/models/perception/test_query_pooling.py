"""Learned queries against torch's own modules."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headstart.engine.errors import BadWeights
from headstart.engine.models.checkpoint.tensors import Scope
from headstart.engine.models.perception.pooling import Embedded
from headstart.engine.models.perception.query_pooling import PoolerSizes, QueryPooling, sines


class Reference(nn.Module):
    """The pooler in plain torch."""

    def __init__(self, sizes: PoolerSizes) -> None:
        super().__init__()
        width = sizes.width
        self.sizes = sizes
        self.queries = nn.Parameter(torch.randn(sizes.queries, width))
        self.norm_q, self.norm_kv, self.norm_out = (nn.LayerNorm(width, eps=1e-6) for _ in range(3))
        self.attention = nn.MultiheadAttention(width, sizes.heads, batch_first=True)
        if width != sizes.hidden:
            self.input = nn.Linear(sizes.hidden, width, bias=False)
            self.output = nn.Linear(width, sizes.hidden)
        if sizes.frames > 1:
            self.times = nn.Parameter(torch.randn(sizes.frames, width))

    def forward(self, frames: Tensor, rows: int, columns: int) -> Tensor:
        """[frames, rows * columns, hidden] -> [queries, hidden]."""
        x = self.input(frames) if hasattr(self, "input") else frames
        values = self.norm_kv(x)
        keys = values + places(rows, columns, self.sizes.width)
        if hasattr(self, "times"):
            keys = keys + self.times[: len(frames), None]
        seen, _ = self.attention(
            self.norm_q(self.queries)[None], keys.flatten(0, 1)[None], values.flatten(0, 1)[None]
        )
        x = self.norm_out(seen[0])
        pooled: Tensor = self.output(x) if hasattr(self, "output") else x
        return pooled


def places(rows: int, columns: int, width: int) -> Tensor:
    """Row, then column: sines, then cosines of a quarter of the width each."""
    out = torch.empty(rows * columns, width, dtype=torch.float64)
    quarter = width // 4
    for at, cell in enumerate(product(range(rows), range(columns))):
        for axis, place in enumerate(cell):
            for i in range(quarter):
                angle = torch.tensor(place / 10_000 ** (i / quarter), dtype=torch.float64)
                out[at, 2 * axis * quarter + i] = angle.sin()
                out[at, (2 * axis + 1) * quarter + i] = angle.cos()
    return out


class Given:
    """Tensors of a state dict (a `Tensors`)."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors

    def has(self, name: str) -> bool:
        return name in self.tensors

    def take(self, name: str, *shape: int) -> Tensor:
        if tuple(self.tensors[name].shape) != shape:
            raise BadWeights(Path("pooler"), name, str(shape), str(self.tensors[name].shape))
        return self.tensors[name]

    def copied(self, name: str) -> None:
        raise AssertionError("nothing is copied")


SIZES = {
    "256 tokens to 64": PoolerSizes(hidden=64, width=64, queries=64, heads=4),
    "four frames to 64": PoolerSizes(hidden=64, width=64, queries=64, heads=4, frames=4),
    "narrower than the model": PoolerSizes(hidden=96, width=32, queries=6, heads=2, frames=2),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_torch_attention(sizes: PoolerSizes, dtype: torch.dtype) -> None:
    """Whole and incomplete groups: in fp64 to 1e-12, in fp32 to 1e-5."""
    theirs, ours = pair(sizes, dtype)
    for count in range(1, sizes.frames + 1):
        frames = torch.randn(count, 256, sizes.hidden, dtype=dtype)
        pooled = ours.pool([_unit(frame) for frame in frames], 1000)
        with torch.inference_mode():
            wanted = theirs(frames.double(), 16, 16)
        tolerance = 1e-12 if dtype == torch.float64 else 1e-5
        assert wanted.abs().max() > 1
        assert (pooled.vectors - wanted).abs().max() < tolerance
        assert len(pooled.cells) == pooled.rows * pooled.columns == sizes.queries


def pair(sizes: PoolerSizes, dtype: torch.dtype) -> tuple[Any, QueryPooling]:
    torch.manual_seed(sizes.width)
    theirs = Reference(sizes)
    for parameter in theirs.parameters():
        parameter.data = parameter.data + 0.1 * torch.randn_like(parameter)
    theirs = theirs.to(dtype)
    given = Given({name: tensor.clone() for name, tensor in theirs.state_dict().items()})
    return theirs.double().eval(), QueryPooling(given, sizes)


def _unit(vectors: Tensor) -> Embedded:
    return Embedded(vectors, tuple(product(range(16), range(16))), 16, 16)


def test_a_smaller_budget_merges_what_came_out() -> None:
    """The load asks for fewer tokens than there are queries."""
    _, ours = pair(SIZES["256 tokens to 64"], torch.float64)
    unit = _unit(torch.randn(256, 64, dtype=torch.float64))
    assert len(ours.pool([unit], 20).vectors) == 20


def test_places_are_sines() -> None:
    """Written out cell by cell."""
    assert (
        sines(tuple(product(range(3), range(5))), 16, torch.float64) - places(3, 5, 16)
    ).abs().max() < 1e-12


def test_a_misshapen_tensor_is_named() -> None:
    """A time vector is missing."""
    sizes = SIZES["four frames to 64"]
    theirs, _ = pair(sizes, torch.float64)
    tensors = dict(theirs.state_dict()) | {"times": torch.zeros(3, 64)}
    with pytest.raises(BadWeights, match="times"):
        QueryPooling(Scope(Given(tensors), ""), sizes)
