"""Small models to run, and short ways to run them, for tests of what needs a decoder."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.engine.config import EngineConfig
from headstart.engine.device.decoder import DeviceDecoder
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.load import LoadedModel, load_model
from headstart.engine.scheduling.scheduler import Request, Scheduler
from tests.engine.tiny_gguf import TinyConfig, write_tiny_gguf

EITHER = ("native", "device")  # the CPU's kernels, and the decoder for GPUs on CPU tensors
_numbers = itertools.count()


def load_tiny(
    folder: Path, config: TinyConfig, backend: str = "reference", **settings: Any
) -> LoadedModel:
    """A tiny random model with a pool of 64 blocks of 4 tokens unless `settings` say otherwise."""
    path = folder / f"tiny{next(_numbers)}.gguf"
    write_tiny_gguf(path, config)
    bytes_per_block = 4 * 2 * config.layers * config.kv_width * 4
    wanted = {"block_size": 4, "kv_pool_bytes": 64 * bytes_per_block, "threads": 1, **settings}
    return load_model(path, EngineConfig(backend=backend, **wanted))


def finish(model: LoadedModel, stream: Stream, token_budget: int = 64) -> Tensor:
    """Step until nothing is pending; logits after the stream's last token, copied."""
    assert stream.pending
    scheduler = Scheduler(token_budget)
    while True:
        plan = scheduler.plan([Request(stream, 0, wants_logits=True)], now_ns=0)
        result = model.runner.step(plan)
        for refused in result.refused.values():
            raise refused
        if stream in result.logits:
            return result.logits[stream].clone()


def logits_at_once(model: LoadedModel, tokens: Sequence[int]) -> Tensor:
    """Logits after `tokens`, prefilled in one step on a stream of their own."""
    stream = model.new_stream("offline")
    stream.append(tokens)
    logits = finish(model, stream, token_budget=len(tokens))
    stream.close()
    return logits


def alike(model: LoadedModel, got: Tensor, wanted: Tensor) -> bool:
    """Whether logits are the same, computed in another batch: bit for bit by the CPU's kernels; by
    the decoder for GPUs, whose products round by the batch, to fp32's rounding."""
    if not isinstance(model.decoder, DeviceDecoder):
        return torch.equal(got, wanted)
    return bool((got - wanted).abs().max() <= 1e-4 * wanted.abs().max())


def greedy(model: LoadedModel, stream: Stream, count: int) -> list[int]:
    """`count` greedy tokens after what the stream reads; all but the last are appended."""
    chosen = [int(finish(model, stream).argmax())]
    for _ in range(count - 1):
        stream.append(chosen[-1:])
        chosen.append(int(finish(model, stream).argmax()))
    return chosen
