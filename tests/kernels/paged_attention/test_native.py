"""The C kernel: right on ugly sizes, and the same bits however rows are batched or blocks dealt."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from headstart.kernels.paged_attention import append, paged_attention, reference
from headstart.kernels.paged_attention.storage import encode
from tests.kernels.compiled import LEVELS
from tests.kernels.paged_attention.pools import Pools, Shape, filled
from tests.numerics import assert_as_near

SHAPES = [
    Shape(heads=14, kv_heads=2, head_dim=64, block_size=16, lengths=(7, 50, 160)),
    Shape(heads=9, kv_heads=3, head_dim=20, block_size=5, lengths=(1, 17, 33)),
    Shape(heads=4, kv_heads=4, head_dim=128, block_size=32, lengths=(64, 31, 100)),
    Shape(heads=3, kv_heads=1, head_dim=8, block_size=1, lengths=(9, 1, 2)),
    Shape(heads=2, kv_heads=1, head_dim=104, block_size=12, lengths=(40, 12, 25)),
]
NARROW = [
    replace(shape, dtype=dtype)
    for dtype in (torch.float16, torch.int8, torch.float8_e4m3fn)
    for shape in SHAPES[:3]
]
ALL = [*SHAPES, *NARROW]


def rows_of(shape: Shape, *, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """q, seq_of_row, context_of_row: first, middle and last token of each sequence, and none."""
    where = [(s, c) for s, n in enumerate(shape.lengths) for c in (1, (n + 1) // 2, n)] + [(0, 0)]
    seqs, contexts = (torch.tensor(part, dtype=torch.int32) for part in zip(*where, strict=True))
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(where), shape.heads, shape.head_dim, generator=generator), seqs, contexts


def attend(
    pools: Pools, rows: tuple[Tensor, Tensor, Tensor], backend: str, scale: float = 0.15
) -> Tensor:
    """paged_attention over a filled cache."""
    q, seqs, contexts = rows
    return paged_attention(
        q, pools.k_pool, pools.v_pool, pools.tables, seqs, contexts, scale, backend=backend
    )


def exact(pools: Pools, rows: tuple[Tensor, Tensor, Tensor], scale: float = 0.15) -> Tensor:
    """The same in fp64."""
    q, seqs, contexts = rows
    return reference.paged_attention(
        q.double(), pools.k_pool, pools.v_pool, pools.tables, seqs, contexts, scale
    )


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize("shape", ALL)
def test_equals_the_reference(backend: str, shape: Shape) -> None:
    """Every row equals the reference though unused slots are NaN and unused table entries -1."""
    pools, rows = filled(shape), rows_of(shape)
    got, want = attend(pools, rows, backend), attend(pools, rows, "reference")
    assert_as_near(got, want, exact(pools, rows))
    assert (got[-1] == 0).all(), "a row that sees nothing gives zeros"


@pytest.mark.parametrize("shape", ALL)
def test_rows_are_bitwise_independent_of_the_batch(shape: Shape) -> None:
    """A row alone, in a pair and in reversed order has the bits it has among all."""
    pools, (q, seqs, contexts) = filled(shape), rows_of(shape)
    whole = attend(pools, (q, seqs, contexts), "native")
    for i in range(len(q)):
        part = slice(i, i + 1)
        alone = attend(pools, (q[part], seqs[part], contexts[part]), "native")
        assert torch.equal(alone[0], whole[i])
    back = torch.arange(len(q) - 1, -1, -1)
    assert torch.equal(attend(pools, (q[back], seqs[back], contexts[back]), "native"), whole[back])


@pytest.mark.parametrize("shape", ALL)
def test_block_numbers_do_not_change_a_bit(shape: Shape) -> None:
    """The same tokens in other blocks give the same bits."""
    rows = rows_of(shape)
    first = attend(filled(shape, seed=0), rows, "native")
    second = attend(filled(shape, seed=5, spare_blocks=11), rows, "native")
    assert torch.equal(first, second)


@pytest.mark.parametrize("rows_kept", [1, 10])
def test_thread_count_does_not_change_a_bit(rows_kept: int) -> None:
    """One thread, two and five give the same bits, for one row (split by heads) and for many."""
    pools = filled(SHAPES[1])
    q, seqs, contexts = (part[-rows_kept - 1 :] for part in rows_of(SHAPES[1]))
    before, results = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(attend(pools, (q, seqs, contexts), "native"))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("backend", LEVELS)
def test_large_scores_do_not_overflow(backend: str) -> None:
    """Scores of some thousands give the softmax's limit, no infinity and no NaN."""
    pools, rows = filled(SHAPES[0]), rows_of(SHAPES[0])
    got = attend(pools, rows, backend, scale=300.0)
    assert got.isfinite().all()
    want = attend(pools, rows, "reference", scale=300.0)
    assert_as_near(got, want, exact(pools, rows, scale=300.0))


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize("shape", [SHAPES[0], NARROW[3], NARROW[6]])
def test_nan_in_a_key_that_is_seen_reaches_the_output(backend: str, shape: Shape) -> None:
    """A poisoned key spoils the rows that see it, and only those."""
    pools = filled(shape)
    block, offset = divmod(20, shape.block_size)
    poison = encode(torch.full((shape.kv_heads, shape.head_dim), float("nan")), shape.dtype)
    pools.k_pool[pools.tables[1, block].long()][:, offset] = poison
    q = torch.randn(2, shape.heads, shape.head_dim)
    seqs = torch.tensor([1, 1], dtype=torch.int32)
    got = attend(pools, (q, seqs, torch.tensor([20, 21], dtype=torch.int32)), backend)
    assert got[0].isfinite().all()
    assert got[1].isnan().all()


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int8, torch.float8_e4m3fn], ids=str
)
def test_append_equals_the_reference(backend: str, dtype: torch.dtype) -> None:
    """Rows land in their slots, rounded as torch rounds, and nothing else is touched; numbers that
    no type can hold, and rows without any, included."""
    k, v = torch.randn(9, 3, 20) * 1e-4, torch.randn(9, 3, 20) * 1e5
    k[0, 0, :6] = torch.tensor([0.0, -0.0, 1e-8, 65504.0, 65520.0, float("inf")])
    k[1], k[2] = 0.0, k[2] * 1e-38  # the scale's own bits run out
    k[3, 1, 4] = float("nan")
    v[4] = torch.arange(60).view(3, 20) / 448  # ties between two codes
    slots = torch.tensor([34, 0, 7, 6, 21, 20, 33, 1, 2])
    pools = [encode(torch.full((7, 3, 5, 20), 9.0), dtype) for _ in range(4)]
    append(pools[0], pools[1], k, v, slots, backend=backend)
    append(pools[2], pools[3], k, v, slots, backend="reference")
    for mine, theirs in ((pools[0], pools[2]), (pools[1], pools[3])):
        assert torch.equal(mine.view(torch.uint8), theirs.view(torch.uint8))
