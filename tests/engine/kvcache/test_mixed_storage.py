"""The memory of a cache with blocks of two types."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headstart.engine.errors import BadSettings
from headstart.engine.kvcache.mixed_storage import MixedKvCache
from headstart.kernels.rope.reference import rope

LAYERS, KV_HEADS, WIDTH, BLOCK = 3, 2, 16, 4
SLAB_BYTES = 2 * LAYERS * KV_HEADS * WIDTH * 4 * BLOCK * 5


def new_cache(slabs: int = 4, narrow_dtype: str = "int8", width: int = WIDTH) -> MixedKvCache:
    return MixedKvCache(
        layers=LAYERS,
        kv_heads=KV_HEADS,
        head_dim=width,
        block_size=BLOCK,
        pool_bytes=slabs * SLAB_BYTES + 7,
        kv_dtype="fp32",
        narrow_dtype=narrow_dtype,
    )


def slots(block: int, count: int = BLOCK) -> Tensor:
    return block * BLOCK + torch.arange(count)


def rows(count: int) -> Tensor:
    return torch.randn(2, count, KV_HEADS, WIDTH)


def test_a_slab_is_either_type() -> None:
    """Five wide blocks, or sixteen narrow ones, of which a token costs 5/16."""
    cache = new_cache()
    assert (cache.slabs, cache.num_blocks) == (4, 20)
    assert cache.bytes_per_token == 2 * LAYERS * KV_HEADS * WIDTH * 4
    assert cache.narrow_bytes_per_token * 16 == cache.bytes_per_token * 5
    pool = cache.new_pool(0.25, shares=True)
    assert (pool.num_blocks, pool.max_cached) == (20, 5)
    assert len({*pool.take([True] * 64)}) == 64
    assert pool.free_blocks == 0


def test_narrow_blocks_stay_in_their_slab() -> None:
    """All narrow blocks of the second slab filled: of the wide ones the second slab's five change,
    in every layer."""
    cache = new_cache()
    cache.fill(2.5)
    for index in range(16):
        for layer in range(LAYERS):
            cache.scatter(layer, slots(20 + 16 + index), rows(BLOCK))
    for layer in range(LAYERS):
        changed = (cache.gather(layer, torch.arange(20 * BLOCK)) != 2.5).any(dim=(0, 2, 3))
        assert (
            changed.view(20, BLOCK).any(dim=1).tolist() == [False] * 5 + [True] * 5 + [False] * 10
        )


@pytest.mark.parametrize(("narrow_dtype", "error"), [("int8", 0.005), ("fp8", 0.04)])
def test_rows_move_between_types(narrow_dtype: str, error: float) -> None:
    """Wide to narrow rounds, narrow to wide does not, and narrow to narrow keeps the codes, also
    onto each other's slots."""
    cache = new_cache(narrow_dtype=narrow_dtype)
    wide, narrow, other = slots(0), slots(20 + 16), slots(20 + 17)
    before = rows(BLOCK)
    for layer in range(LAYERS):
        cache.scatter(layer, wide, before)
    cache.move(wide, narrow)
    rounded = cache.gather(1, narrow)
    assert 0 < (rounded - before).abs().max() <= error * before.abs().max()
    cache.move(narrow, slots(1))
    assert torch.equal(cache.gather(1, slots(1)), rounded)
    stored = cache.save_block(20 + 16, BLOCK)
    cache.move(torch.cat((narrow, wide)), torch.cat((other, narrow)))
    assert torch.equal(cache.save_block(20 + 17, BLOCK), stored)
    assert torch.equal(cache.save_block(20 + 16, BLOCK), stored)


def test_blocks_are_copied_within_a_type_and_widened() -> None:
    """All layers, K and V; what is saved and loaded again is the same bytes."""
    cache = new_cache()
    for layer in range(LAYERS):
        cache.scatter(layer, slots(20), rows(BLOCK))
        cache.scatter(layer, slots(7), rows(BLOCK))
    cache.copy_block(20, 22)
    cache.copy_block(7, 9)
    assert torch.equal(cache.save_block(22, 3), cache.save_block(20, 3))
    assert torch.equal(cache.save_block(9, 3), cache.save_block(7, 3))
    cache.copy_block(20, 10)
    for layer in range(LAYERS):
        assert torch.equal(cache.gather(layer, slots(10)), cache.gather(layer, slots(20)))
    for block in (20, 7):
        saved = cache.save_block(block, 3)
        cache.load_block(block + 4, saved)
        assert torch.equal(cache.save_block(block + 4, 3), saved)


def test_keys_are_rotated_in_either_type() -> None:
    """To what they would be, but for rounding where they are narrow; values stay."""
    cache, before = new_cache(), rows(2)
    at = torch.tensor([0, 20 * BLOCK + 16 * BLOCK])
    angles = torch.rand(2, WIDTH // 2)
    for layer in range(LAYERS):
        cache.scatter(layer, at, before)
    values = cache.gather(0, at)[1]
    cache.rotate_keys(at, at + 1, angles.cos(), angles.sin())
    keys, same = cache.gather(0, at + 1)
    wanted = rope(before[0], angles.cos(), angles.sin())
    assert torch.allclose(keys[0], wanted[0], atol=1e-6)
    assert (keys[1] - wanted[1]).abs().max() < 0.05
    assert torch.allclose(same, values, rtol=1e-6)


def test_unwritten_slots_are_nan_in_either_type() -> None:
    """A cache filled with NaN shows reads of slots that nothing was stored at."""
    cache = new_cache()
    cache.fill(float("nan"))
    assert cache.gather(2, torch.cat((slots(3), slots(20 + 40)))).isnan().all()


def test_a_pool_without_two_slabs_is_refused() -> None:
    """The error says how many bytes there must be."""
    with pytest.raises(BadSettings, match=f"at least {2 * SLAB_BYTES}"):
        new_cache(1)


def test_blocks_that_do_not_divide_a_slab_are_refused() -> None:
    """Heads of 5 numbers: narrow blocks would not begin at whole bytes."""
    with pytest.raises(BadSettings, match="block_size"):
        new_cache(width=5)
