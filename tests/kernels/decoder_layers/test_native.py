"""One C call for all layers: the bits of the operations called one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from headstart.kernels.decoder_layers import DecoderLayers
from headstart.kernels.decoder_layers.reference import decoder_layers
from headstart.kernels.errors import KernelInputError
from headstart.kernels.paged_attention.storage import Narrow
from tests.kernels.compiled import LEVELS
from tests.kernels.decoder_layers.model import SIZES, layers, run, step


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random model and step in every run."""
    torch.manual_seed(0)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int8, torch.float8_e4m3fn], ids=str
)
@pytest.mark.parametrize("wanted", [None, [6], [5, 0, 3], [], [2, 6] * 40])
@pytest.mark.parametrize("backend", LEVELS)
def test_equals_the_operations_bit_for_bit(
    backend: str, wanted: list[int] | None, dtype: torch.dtype
) -> None:
    """Output and pools equal those of the same operations called through Python."""
    model = DecoderLayers(layers(), SIZES)
    picked = None if wanted is None else torch.tensor(wanted, dtype=torch.int64)
    at = step(dtype=dtype, wanted=picked)
    got, pools = run(model, at, backend)
    k_pools, v_pools = ([pool.clone() for pool in part] for part in (at.k_pools, at.v_pools))
    want = decoder_layers(model.layers, SIZES, at.x, at.rows, k_pools, v_pools, backend)
    assert torch.equal(got, want)
    raw = [[pool.view(torch.uint8) for pool in part] for part in (pools, k_pools + v_pools)]
    assert all(torch.equal(a, b) for a, b in zip(*raw, strict=True))


@pytest.mark.parametrize("backend", LEVELS)
def test_blocks_of_two_types_equal_the_operations(backend: str) -> None:
    """Some blocks narrow, some rows rounded: the bits of the operations, and those of wide blocks
    only with the same rows rounded."""
    model, at = DecoderLayers(layers(), SIZES), step()
    narrow = Narrow.beside(torch.float32, torch.int8, SIZES.head_dim)
    assert (narrow.wide_in_slab, narrow.narrow_in_slab) == (5, 16)
    coded = torch.tensor([True, True, False, True, False, True, True])
    # Room for a slab more; sequence 1's only block is the first narrow one of the third slab, and
    # the block with the last row of sequence 0 is beside it.
    more = [
        [F.pad(pool, (0, 0) * 3 + (0, 3)) for pool in part] for part in (at.k_pools, at.v_pools)
    ]
    wide = replace(at.rows, narrow=narrow, coded=coded | (at.rows.seq_of_row == 1))
    at = replace(at, rows=wide, k_pools=more[0], v_pools=more[1])
    alone, _ = run(model, at, backend)
    tables, slots = wide.tables.clone(), wide.slots.clone()
    tables[1, 0] = 15 + 2 * 16
    slots[4:] = (15 + 2 * 16) * 4 + torch.arange(3)
    at = replace(at, rows=replace(wide, tables=tables, slots=slots))
    got, pools = run(model, at, backend)
    assert torch.equal(got, alone)
    k_pools, v_pools = ([pool.clone() for pool in part] for part in (at.k_pools, at.v_pools))
    want = decoder_layers(model.layers, SIZES, at.x, at.rows, k_pools, v_pools, backend)
    assert torch.equal(got, want)
    raw = [[pool.view(torch.uint8) for pool in part] for part in (pools, k_pools + v_pools)]
    assert all(torch.equal(a, b) for a, b in zip(*raw, strict=True))


@pytest.mark.parametrize("wanted", [None, [6], [5, 0, 3]])
@pytest.mark.parametrize("backend", LEVELS)
def test_queries_are_those_of_the_operations(backend: str, wanted: list[int] | None) -> None:
    """Handed out for the rows that come out, in every layer; nothing else changes by that."""
    model = DecoderLayers(layers(), SIZES)
    picked = None if wanted is None else torch.tensor(wanted, dtype=torch.int64)
    at = step(wanted=picked)
    count = 7 if wanted is None else len(wanted)
    got, want = (torch.full((3, count, SIZES.heads, SIZES.head_dim), torch.nan) for _ in range(2))
    alone, _ = run(model, at, backend)
    beside, _ = run(model, replace(at, rows=replace(at.rows, queries=got)), backend)
    assert torch.equal(alone, beside)
    k_pools, v_pools = ([pool.clone() for pool in part] for part in (at.k_pools, at.v_pools))
    rows = replace(at.rows, queries=want)
    decoder_layers(model.layers, SIZES, at.x, rows, k_pools, v_pools, backend)
    assert torch.equal(got, want)
    assert got.isfinite().all()


def test_room_for_queries_must_fit() -> None:
    """Rows that come out, not all rows."""
    model, at = DecoderLayers(layers(), SIZES), step(wanted=torch.tensor([1]))
    rows = replace(at.rows, queries=torch.empty(3, 2, SIZES.heads, SIZES.head_dim))
    with pytest.raises(KernelInputError, match="queries"):
        model(at.x, rows, at.k_pools, at.v_pools)


def test_is_near_the_reference() -> None:
    """One layer is near plain torch's: four matmuls in a row, each 0.6 % off at most."""
    model, at = DecoderLayers(layers(1), SIZES), step(1)
    got, want = run(model, at, "native")[0], run(model, at, "reference")[0]
    assert (got - want).norm() < 4 * 0.006 * want.norm()


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_a_scale_of_the_keys_changes_no_bit(backend: str) -> None:
    """Powers of two, taken out of the keys and put into the queries, leave the output as it is."""
    made, at = layers(), step()
    for pool in at.k_pools:
        pool.zero_()
    plain = [replace(layer, key_scale=None) for layer in made]
    scaled, k_scaled = run(DecoderLayers(made, SIZES), at, backend)
    want, k_plain = run(DecoderLayers(plain, SIZES), at, backend)
    assert torch.equal(scaled, want)
    scale = made[1].key_scale
    assert scale is not None
    assert torch.equal(k_scaled[1] * scale[:, None], k_plain[1])


def test_the_input_is_left_alone() -> None:
    """x is not written to, with and without wanted rows."""
    for wanted in (None, torch.tensor([1])):
        model, at = DecoderLayers(layers(), SIZES), step(wanted=wanted)
        before = at.x.clone()
        run(model, at, "native")
        assert torch.equal(at.x, before)


def test_thread_count_does_not_change_a_bit() -> None:
    """One thread and three give the same bits."""
    model, at, before = DecoderLayers(layers(), SIZES), step(), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = run(model, at, "native")[0]
        torch.set_num_threads(3)
        assert torch.equal(run(model, at, "native")[0], one)
    finally:
        torch.set_num_threads(before)
