"""Blocks of two types in one pool: read and written in one call, with the same bits in either."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.paged_attention import append, paged_attention, reference
from headstart.kernels.paged_attention.storage import Narrow, blocks_in
from tests.kernels.compiled import LEVELS
from tests.numerics import assert_as_near

HEADS, KV_HEADS, BLOCK, SLABS, TOKENS = 6, 2, 4, 4, 90
WIDTHS = (16, 64, 128, 20, 104)
CODES = (torch.int8, torch.float8_e4m3fn)
SCALE = 0.15


@dataclass(frozen=True)
class Case:
    """A sequence whose blocks are wide and narrow by turns, a narrow row in a wide block too."""

    narrow: Narrow
    k_pool: Tensor
    v_pool: Tensor
    table: Tensor  # [1, blocks]
    coded: Tensor  # bool [TOKENS]
    keys: Tensor
    values: Tensor

    @property
    def slots(self) -> Tensor:
        at = torch.arange(TOKENS)
        return self.table[0, at // BLOCK].long() * BLOCK + at % BLOCK

    def fill(self, backend: str) -> None:
        append(
            self.k_pool,
            self.v_pool,
            self.keys,
            self.values,
            self.slots,
            narrow=self.narrow,
            coded=self.coded,
            backend=backend,
        )

    def attend(self, backend: str) -> Tensor:
        """What the first, a middle and the last token see; "exact": in fp64."""
        q = torch.randn(3, HEADS, self.keys.shape[2], generator=torch.Generator().manual_seed(3))
        contexts = torch.tensor([1, TOKENS // 2, TOKENS], dtype=torch.int32)
        where = self.table, torch.zeros(3, dtype=torch.int32), contexts
        pools = self.k_pool, self.v_pool
        if backend == "exact":
            return reference.paged_attention(q.double(), *pools, *where, SCALE, self.narrow)
        return paged_attention(q, *pools, *where, SCALE, narrow=self.narrow, backend=backend)


def case(width: int, code: torch.dtype, *, mixed: bool = True) -> Case:
    """`mixed`: every second block is narrow; else all are wide, and the same rows are rounded. What
    nothing is stored at is NaN."""
    narrow = Narrow.beside(torch.float32, code, width)
    dealer, contents = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    slabs = SLABS * -(-16 // narrow.wide_in_slab)
    pool = torch.full((slabs * narrow.wide_in_slab, KV_HEADS, BLOCK, width), torch.nan)
    count = -(-TOKENS // BLOCK)
    # Narrow blocks lie in the second half of the memory.
    second = len(pool) + narrow.num_blocks(pool) // 2
    table = torch.arange(count, dtype=torch.int32)
    if mixed:
        table[1::2] = second + torch.randperm(count // 2, generator=dealer).int()
    coded = torch.arange(TOKENS) // BLOCK % 2 == 1
    coded[2 * BLOCK + 1] = True
    size = (2, TOKENS, KV_HEADS, width)
    keys, values = torch.randn(size, generator=contents) * 3
    keys[5, 1], values[8, 0] = 0.0, 1e-30
    return Case(narrow, pool, pool.clone(), table[None], coded, keys, values)


@pytest.mark.parametrize("backend", [*LEVELS, "reference"])
@pytest.mark.parametrize("code", CODES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_type_of_a_block_changes_no_bit(width: int, code: torch.dtype, backend: str) -> None:
    """A coded row is read with the same bits from a narrow block and from a wide one."""
    one, two = case(width, code, mixed=False), case(width, code)
    for each in (one, two):
        each.fill(backend)
    got = two.attend(backend)
    assert torch.equal(got, one.attend(backend))
    assert not got.isnan().any()


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize("code", CODES, ids=str)
@pytest.mark.parametrize("width", WIDTHS)
def test_equals_the_reference(width: int, code: torch.dtype, backend: str) -> None:
    """The same bytes in the pools, and the sums of fp64 to fp32's rounding."""
    ours, theirs = case(width, code), case(width, code)
    ours.fill(backend)
    theirs.fill("reference")
    for mine, other in ((ours.k_pool, theirs.k_pool), (ours.v_pool, theirs.v_pool)):
        assert torch.equal(mine.view(torch.int8), other.view(torch.int8))
    assert_as_near(ours.attend(backend), theirs.attend("reference"), theirs.attend("exact"))


@pytest.mark.parametrize("code", CODES, ids=str)
def test_only_coded_rows_are_rounded(code: torch.dtype) -> None:
    """Text in wide blocks has the bits that were given."""
    at = case(64, code)
    at.fill("reference")
    stored = at.k_pool[at.slots[~at.coded] // BLOCK, :, at.slots[~at.coded] % BLOCK]
    assert torch.equal(stored, at.keys[~at.coded])


def test_slabs_have_room_for_both_types() -> None:
    """No slab's narrow blocks take more than its wide ones, and little is left over."""
    for width in (*WIDTHS, 80, 96, 256):
        for code in CODES:
            narrow = Narrow.beside(torch.float32, code, width)
            pool = torch.empty(2 * narrow.wide_in_slab, KV_HEADS, 16, width)
            view = narrow.view(pool)
            assert len(view) == 2 * narrow.narrow_in_slab
            used = view.numel() / (pool.numel() * 4)
            assert 0.93 < used <= 1
            last = view[-1, -1, -1, -1].data_ptr()
            assert last < pool.data_ptr() + pool.numel() * 4


def test_what_cannot_be_is_refused() -> None:
    """A second type beside a pool that is no fp32, one that has no codes, and blocks or slots that
    neither type has."""
    at = case(64, torch.int8)
    count = blocks_in(at.k_pool, at.narrow)
    pools = at.k_pool.half(), at.v_pool.half()
    for backend in (*LEVELS, "reference"):
        with pytest.raises(KernelInputError, match="narrow: expected int8 or fp8 beside fp32"):
            append(*pools, at.keys, at.values, at.slots, narrow=at.narrow, backend=backend)
    floats = Narrow(torch.float16, 1, 2)
    for backend in LEVELS:
        with pytest.raises(KernelInputError, match="narrow: expected"):
            append(at.k_pool, at.v_pool, at.keys, at.values, at.slots, narrow=floats)
        slots = at.slots.clone()
        slots[7] = count * BLOCK
        rows = at.keys, at.values, slots
        with pytest.raises(KernelInputError, match="slots"):
            append(at.k_pool, at.v_pool, *rows, narrow=at.narrow, backend=backend)
        at.table[0, 1] = count
        with pytest.raises(KernelInputError, match="row 1 names"):
            at.attend(backend)
        at.table[0, 1] = count - 1
