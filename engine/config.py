"""The engine's settings: one frozen dataclass, checked when it is made."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from engine.errors import BadSettings

MIB = 1 << 20
KV_DTYPES = ("fp32", "fp16")
BACKENDS = ("auto", "native", "reference")
WEIGHTS = ("bf16", "fp32", "int8")
TAILS = ("closed", "provisional")


def usable_cores() -> int:
    """Cores this process may run on (a container may allow fewer than the machine has)."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine process. Raises `BadSettings` for a value out of range.

    Attributes:
        model: a set of weights ("small", "tiny").
        kv_pool_bytes: memory set aside for K and V of all sessions; touched only as it is used.
        block_size: tokens in one block of the paged cache.
        max_context_tokens: limit of one session; the model's own limit applies too.
        token_budget: tokens the decoder takes per step; a step's length bounds how long a
            decoding session waits for another one's prefill.
        threads: cores the native kernels and torch may use.
        kv_dtype: storage of K and V, "fp32" or "fp16".
        backend: "native" (packed weights, C kernels), "reference" (dequantised fp32, torch: exact,
            large, slow) or "auto" (native where there is a C compiler).
        weights: of a model directory's decoder: "bf16" (as published), "fp32", or "int8" on the
            native kernels.
        tail: what of an open unit of sound is prefilled, "closed" (nothing) or "provisional".
    """

    model: str = "small"
    kv_pool_bytes: int = 512 * MIB
    block_size: int = 16
    max_context_tokens: int = 8192
    token_budget: int = 64
    threads: int = field(default_factory=usable_cores)
    kv_dtype: str = "fp32"
    backend: str = "auto"
    weights: str = "bf16"
    tail: str = "provisional"

    def __post_init__(self) -> None:
        for name in ("kv_pool_bytes", "block_size", "max_context_tokens", "token_budget"):
            if getattr(self, name) < 1:
                raise BadSettings(name, "at least 1", getattr(self, name))
        if self.threads < 1:
            raise BadSettings("threads", "at least 1", self.threads)
        if self.kv_dtype not in KV_DTYPES:
            raise BadSettings("kv_dtype", f"one of {', '.join(KV_DTYPES)}", self.kv_dtype)
        if self.weights not in WEIGHTS:
            raise BadSettings("weights", f"one of {', '.join(WEIGHTS)}", self.weights)
        if self.tail not in TAILS:
            raise BadSettings("tail", f"one of {', '.join(TAILS)}", self.tail)
        if self.backend not in BACKENDS:
            raise BadSettings("backend", f"one of {', '.join(BACKENDS)}", self.backend)
