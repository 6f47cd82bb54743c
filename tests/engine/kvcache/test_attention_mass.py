"""Attention mass from stored keys, against plain softmax."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headstart.engine.kvcache.attention_mass import WINDOW_TOKENS, QueryWindow
from headstart.engine.kvcache.storage import KvCache

LAYERS, HEADS, KV_HEADS, DIM = 3, 6, 2, 8


@pytest.mark.parametrize("kv_dtype", ["fp64", "fp32", "int8"])
def test_it_is_the_mean_of_softmaxes(kv_dtype: str) -> None:
    """Over layers, heads and the newest queries; older ones are forgotten."""
    generator = torch.Generator().manual_seed(0)
    cache = KvCache(
        layers=LAYERS,
        kv_heads=KV_HEADS,
        head_dim=DIM,
        block_size=4,
        pool_bytes=1 << 16,
        kv_dtype=kv_dtype,
    )
    keys = torch.randn(LAYERS, 10, KV_HEADS, DIM, generator=generator, dtype=torch.float64)
    slots = torch.randperm(20, generator=generator)[:10]
    for layer in range(LAYERS):
        stored = cache.encode(keys[layer].float() if kv_dtype != "fp64" else keys[layer])
        cache.scatter(layer, slots, torch.stack((stored, stored)))
    window = QueryWindow()
    queries = torch.randn(
        WINDOW_TOKENS + 3, LAYERS, HEADS, DIM, generator=generator, dtype=torch.float64
    )
    for query in queries:
        window.add(query)
    mass = window.mass(cache, slots.numpy())
    total = torch.zeros(10, dtype=torch.float64)
    for query in queries[3:]:
        for layer in range(LAYERS):
            for head in range(HEADS):
                scores = keys[layer, :, head // (HEADS // KV_HEADS)] @ query[layer, head]
                total += (scores / DIM**0.5).softmax(dim=0)
    wanted = total / (WINDOW_TOKENS * LAYERS * HEADS)
    assert mass is not None
    assert mass.sum() == pytest.approx(1, abs=1e-5)
    assert np.abs(mass - wanted.numpy()).max() < (1e-2 if kv_dtype == "int8" else 1e-6)


def test_without_queries_nothing_is_known() -> None:
    """A stream that never answered."""
    cache = KvCache(layers=1, kv_heads=1, head_dim=8, block_size=4, pool_bytes=1 << 12)
    assert QueryWindow().mass(cache, np.arange(3)) is None
