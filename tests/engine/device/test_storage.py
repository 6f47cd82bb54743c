"""K/V on a device has the bytes of K/V on the CPU, in whatever goes in and out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headstart.engine.device.storage import DeviceKvCache
from headstart.engine.errors import BadSettings
from headstart.engine.kvcache.storage import KvCache
from headstart.kernels.paged_attention.storage import store

SIZES: dict[str, Any] = {"layers": 2, "kv_heads": 3, "head_dim": 8, "block_size": 4}
CPU = torch.device("cpu")


@pytest.fixture(params=["fp32", "fp16", "bf16", "int8", "fp8"])
def caches(request: pytest.FixtureRequest) -> tuple[KvCache, DeviceKvCache]:
    """One of each kind with the same random contents."""
    given = {**SIZES, "pool_bytes": 20_000, "kv_dtype": request.param}
    mine, device = KvCache(**given), DeviceKvCache(device=CPU, **given)
    assert device.num_blocks == mine.num_blocks
    assert device.bytes_per_token == mine.bytes_per_token
    slots = torch.arange(mine.num_blocks * 4)
    for layer in range(2):
        for pool in (mine.k_pools[layer], mine.v_pools[layer]):
            store(pool, torch.randn(len(slots), 3, 8), slots)
        device.scatter(layer, slots, mine.gather(layer, slots))
    return mine, device


def contents(cache: KvCache) -> torch.Tensor:
    """All rows, as bytes."""
    slots = torch.arange(cache.num_blocks * cache.block_size)
    rows = torch.stack([cache.gather(layer, slots) for layer in range(2)])
    return rows.contiguous().view(torch.uint8)


def test_every_move_leaves_the_same_bytes(caches: tuple[KvCache, DeviceKvCache]) -> None:
    """Copies of blocks, moves that overlap, rotated keys and offloaded blocks, which may even
    change sides."""
    mine, device = caches
    assert torch.equal(contents(mine), contents(device))
    sources, targets = torch.arange(9), torch.arange(9) + 2
    angle = torch.randn(9, 4)
    for cache in caches:
        cache.copy_block(1, 3)
        cache.move(sources, targets)
        cache.rotate_keys(sources, targets, angle.cos(), angle.sin())
    assert torch.equal(contents(mine), contents(device))
    saved, other = mine.save_block(2, 3), device.save_block(2, 3)
    assert torch.equal(saved.view(torch.uint8), other.view(torch.uint8))
    mine.load_block(0, other)
    device.load_block(0, saved)
    assert torch.equal(contents(mine), contents(device))
    for cache in caches:
        cache.fill(0.5)
    assert torch.equal(contents(mine), contents(device))


def test_codes_lie_apart_from_their_scales() -> None:
    """So that a kernel's rows are aligned; floats have no scales."""
    cache = DeviceKvCache(device=CPU, pool_bytes=20_000, kv_dtype="int8", **SIZES)
    pools = cache.pools[1]
    pools.check(8)
    assert pools.k.shape == (cache.num_blocks, 3, 4, 8)
    assert pools.k_scale is not None
    assert pools.k_scale.shape == (cache.num_blocks, 3, 4)
    assert DeviceKvCache(device=CPU, pool_bytes=20_000, **SIZES).pools[0].k_scale is None


def test_a_pool_that_the_device_has_no_room_for_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the setting's name."""

    def full(*_: object, **__: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "empty", full)
    with pytest.raises(BadSettings, match="kv_pool_bytes must be what is free on cpu"):
        DeviceKvCache(device=CPU, pool_bytes=20_000, **SIZES)
