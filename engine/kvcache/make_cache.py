"""The KV cache and the block pool that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.config import EngineConfig
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.mixed_storage import MixedKvCache
from headstart.engine.kvcache.storage import KvCache


def make_cache(
    spec: DecoderSpec, config: EngineConfig, new: Callable[..., KvCache] = KvCache
) -> tuple[KvCache, BlockPool]:
    """The cache that a decoder needs, made by `new` unless its blocks are of two types, and its
    block pool. Raises `BadSettings`."""
    if config.kv_vision_dtype != "same":
        new = partial(MixedKvCache, narrow_dtype=config.kv_vision_dtype)
    cache = new(
        layers=spec.layers,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        block_size=config.block_size,
        pool_bytes=config.kv_pool_bytes,
        kv_dtype=config.kv_dtype,
    )
    return cache, cache.new_pool(config.prefix_cache_share, shares=config.prefix_sharing)
