"""A model on a paged cache, stepped as the engine steps it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headstart.engine.device.storage import DeviceKvCache
from headstart.engine.kvcache.mixed_storage import MixedKvCache
from headstart.engine.kvcache.storage import KvCache
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.perception.interface import StreamModel
from headstart.engine.scheduling.runner import Runner
from headstart.engine.scheduling.scheduler import Request, Scheduler

BLOCK = 4


class Rig:
    def __init__(
        self,
        model: Any,
        dtype: torch.dtype,
        blocks: int = 512,
        kv_dtype: str | None = None,
        vision_dtype: str | None = None,
        *,
        on_device: bool = False,
    ) -> None:
        """`vision_dtype`: of pictures, in blocks of a second type. `on_device`: for a decoder of
        `engine.device`, on the CPU."""
        self.model: StreamModel = model
        spec = model.spec.decoder
        names = {torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16"}
        per_block = BLOCK * 2 * spec.layers * spec.kv_width * dtype.itemsize
        new: Callable[..., KvCache] = KvCache
        if on_device:
            new = partial(DeviceKvCache, device=torch.device("cpu"))
        elif vision_dtype is not None:
            new = partial(MixedKvCache, narrow_dtype=vision_dtype)
        self.cache: KvCache = new(
            layers=spec.layers,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            block_size=BLOCK,
            pool_bytes=blocks * per_block,
            kv_dtype=kv_dtype or names[dtype],
        )
        self.cache.fill(float("nan"))  # shows reads of unwritten slots
        self.pool = self.cache.new_pool(0.0, shares=True)
        self.runner = Runner(model.decoder, self.cache)

    def stream(self, name: str = "s", limit: int = 2000) -> Stream:
        vocab_size = self.model.spec.decoder.vocab_size
        return Stream(name, self.pool, vocab_size, limit, self.model.new_positions())

    def settle(self, stream: Stream, chance: random.Random | None = None) -> Tensor | None:
        """Step until nothing is pending, in steps of random length; the last logits."""
        logits = None
        while stream.pending:
            scheduler = Scheduler(chance.randint(1, 12) if chance else 1000)
            plan = scheduler.plan([Request(stream, 0, wants_logits=True)], now_ns=0)
            logits = self.runner.step(plan).logits.get(stream)
        return logits
