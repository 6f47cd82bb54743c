"""The memory of the paged KV cache."""

from __future__ import annotations

import multiprocessing

import psutil
import pytest
import torch

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.decoder.rotary import SectionRotary
from headstart.engine.errors import BadSettings
from headstart.engine.kvcache.storage import DTYPES, KvCache, kv_bytes_per_token
from headstart.kernels.rope.reference import rope

MIB = 1 << 20


def make_cache(pool_bytes: int, kv_dtype: str = "fp32") -> KvCache:
    return KvCache(
        layers=3, kv_heads=2, head_dim=8, block_size=4, pool_bytes=pool_bytes, kv_dtype=kv_dtype
    )


@pytest.mark.parametrize(
    ("kv_dtype", "row_bytes"), [("fp32", 32), ("fp16", 16), ("int8", 12), ("fp8", 12)]
)
def test_a_token_costs_exactly_its_k_and_v(kv_dtype: str, row_bytes: int) -> None:
    """2 * layers * kv_heads rows of 8 numbers, with a scale where they are bytes, and the pools
    hold no byte more."""
    cache = make_cache(10_000, kv_dtype)
    assert cache.bytes_per_token == 2 * 3 * 2 * row_bytes
    assert cache.bytes_per_token == kv_bytes_per_token(3, 2, 8, kv_dtype)
    assert cache.num_blocks == 10_000 // (4 * cache.bytes_per_token)
    pools = [*cache.k_pools, *cache.v_pools]
    assert sum(pool.nbytes for pool in pools) == cache.pool_bytes
    assert cache.pool_bytes <= 10_000 < cache.pool_bytes + cache.bytes_per_block


def test_pools_are_contiguous_and_do_not_overlap() -> None:
    """Each layer's K and V are their own [num_blocks, kv_heads, block_size, head_dim]."""
    cache = make_cache(10_000)
    pools = [*cache.k_pools, *cache.v_pools]
    for number, pool in enumerate(pools):
        assert pool.shape == (cache.num_blocks, 2, 4, 8)
        assert pool.is_contiguous()
        pool.fill_(number)
    assert all(torch.all(pool == number) for number, pool in enumerate(pools))


@pytest.mark.parametrize("kv_dtype", DTYPES)
def test_a_block_is_copied_whole(kv_dtype: str) -> None:
    """All bytes of a block's K and V in all layers, scales included, and no other block's."""
    cache = make_cache(20_000, kv_dtype)
    generator = torch.Generator().manual_seed(1)
    pools = [pool.view(torch.uint8) for pool in (*cache.k_pools, *cache.v_pools)]
    for pool in pools:
        pool.copy_(torch.randint(0, 256, pool.shape, generator=generator, dtype=torch.uint8))
    before = [pool.clone() for pool in pools]
    cache.copy_block(2, 0)
    for pool, old in zip(pools, before, strict=True):
        assert torch.equal(pool[0], old[2])
        assert torch.equal(pool[1:], old[1:])


def test_memory_is_touched_only_when_written() -> None:
    """Making a cache of 256 MiB adds almost nothing to a process; filling it adds that much."""
    # In a process of its own: here the allocator may hand out pages that are touched already.
    with multiprocessing.get_context("spawn").Pool(1) as process:
        made, filled = process.apply(growth_of_a_cache, [256 * MIB])
    assert made < 16 * MIB
    assert filled > 240 * MIB


def growth_of_a_cache(pool_bytes: int) -> tuple[int, int]:
    """By how many bytes the process grew after making the cache, and after filling it."""
    process = psutil.Process()
    before = process.memory_info().rss
    cache = make_cache(pool_bytes)
    made = process.memory_info().rss - before
    cache.fill(0.0)
    return made, process.memory_info().rss - before


def test_a_pool_smaller_than_one_block_is_refused() -> None:
    """The error says how many bytes one block takes."""
    with pytest.raises(BadSettings, match="at least 1536"):
        make_cache(1535)


def test_a_move_onto_itself_reads_before_it_writes() -> None:
    """Slots shifted down by one, in every layer: each holds what its neighbour held."""
    cache = make_cache(10_000)
    slots = torch.arange(20)
    for layer in range(cache.layers):
        cache.scatter(layer, slots, torch.randn_like(cache.gather(layer, slots)))
    before = [cache.gather(layer, slots).clone() for layer in range(cache.layers)]
    cache.move(slots[1:], slots[:-1])
    for layer in range(cache.layers):
        after = cache.gather(layer, slots)
        assert torch.equal(after[:, :19], before[layer][:, 1:])
        assert torch.equal(after[:, 19:], before[layer][:, 19:])


@pytest.mark.parametrize(("kv_dtype", "error"), [("fp32", 1e-5), ("int8", 0.06), ("fp8", 0.6)])
def test_rotating_a_key_further_equals_rotating_once(kv_dtype: str, error: float) -> None:
    """A key at any position on three axes, turned on by the same number on all of them, is the key
    turned to where it then stands, but for what storing costs; values stay as they are."""
    spec = DecoderSpec("qwen2", 3, 16, 32, 2, 2, 8, 271, 2**20, 10_000.0, 1e-6, True, False)
    rotary = SectionRotary(spec, (1, 1, 2))
    cache = make_cache(10_000, kv_dtype)
    slots, raw = torch.arange(6), torch.randn(6, 2, 8)
    at = torch.randint(0, 500, (3, 6))
    shift = torch.tensor([0, 1, 7, 100, 2_000, 30_000])
    for layer in range(cache.layers):
        cache.scatter(layer, slots, cache.encode(torch.stack((rope(raw, *rotary(at)), raw))))
    cache.rotate_keys(slots, slots + 6, *rotary(shift.expand(3, -1)))
    wanted = rope(raw, *rotary(at + shift))
    for layer in range(cache.layers):
        keys, values = cache.gather(layer, slots + 6)
        assert torch.allclose(cache.decode(keys), wanted, atol=error, rtol=0)
        assert torch.equal(values, cache.encode(raw))
