"""The public entry refuses what a kernel could not survive."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.paged_attention import append, paged_attention
from tests.kernels.paged_attention.pools import Shape, filled

SHAPE = Shape(heads=4, kv_heads=2, head_dim=8, block_size=4, lengths=(6, 9))


def attend(seq: int, context: int, *, table: Tensor | None = None, heads: int = 4) -> Tensor:
    """One row over the small cache."""
    pools = filled(SHAPE)
    return paged_attention(
        torch.randn(1, heads, 8),
        pools.k_pool,
        pools.v_pool,
        pools.tables if table is None else table,
        torch.tensor([seq], dtype=torch.int32),
        torch.tensor([context], dtype=torch.int32),
        1.0,
    )


@pytest.mark.parametrize(("seq", "context"), [(2, 1), (-1, 1), (0, -1), (0, 9), (1, 17)])
def test_rows_that_point_nowhere_are_refused(seq: int, context: int) -> None:
    """An unknown sequence, or a context past its blocks, names the row and does not read memory."""
    with pytest.raises(KernelInputError, match="row 0 names"):
        attend(seq, context)


def test_blocks_outside_the_pool_are_refused() -> None:
    """A block number past the pool is refused where a row needs it, and ignored elsewhere."""
    table = torch.tensor([[0, 1000]], dtype=torch.int32)
    assert attend(0, 0, table=table).shape == (1, 4, 8)
    with pytest.raises(KernelInputError):
        attend(0, 5, table=table)


def test_heads_must_divide() -> None:
    """Query heads that do not share the KV heads evenly are refused."""
    with pytest.raises(KernelInputError, match="3 heads do not share 2"):
        attend(0, 1, heads=3)


def test_wrong_pools_are_refused() -> None:
    """A pool of another dtype, shape or memory order is refused before anything is stored."""
    k_pool = torch.zeros(3, 2, 4, 8)
    k, slots = torch.randn(1, 2, 8), torch.tensor([0])
    for v_pool in (k_pool.half(), k_pool[:2], torch.zeros(3, 2, 8, 4).transpose(2, 3)):
        with pytest.raises(KernelInputError):
            append(k_pool, v_pool, k, k, slots)
    assert not k_pool.any()


@pytest.mark.parametrize("shape", [(3, 2, 0, 8), (3, 0, 4, 8)])
def test_pools_without_heads_or_slots_are_refused(shape: tuple[int, ...]) -> None:
    """Where a slot lies is found by dividing by them: that would end the process."""
    pool, row = torch.zeros(shape), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(KernelInputError, match="expected heads and slots"):
        paged_attention(torch.randn(1, 4, 8), pool, pool, torch.zeros(1, 1).int(), row, row, 1.0)


@pytest.mark.parametrize("slot", [-1, 12])
def test_slots_outside_the_pool_are_refused(slot: int) -> None:
    """A slot outside the pool stores nothing at all, not even the rows before it."""
    k_pool = torch.zeros(3, 2, 4, 8)
    v_pool = torch.zeros_like(k_pool)
    with pytest.raises(KernelInputError, match=rf"slots\[1\] is {slot}: expected 0 .. 11"):
        append(k_pool, v_pool, torch.ones(2, 2, 8), torch.ones(2, 2, 8), torch.tensor([0, slot]))
    assert not k_pool.any()
    assert not v_pool.any()
