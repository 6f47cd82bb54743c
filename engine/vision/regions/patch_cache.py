"""Cache of encoded regions: what questions are often about stays.

`engine.vision.encoder_cache` keeps what was used last; this one also counts how often a region was
asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")
NS_PER_S = 1_000_000_000


@dataclass(slots=True)
class _Patch(Generic[Value]):
    value: Value
    size_bytes: int
    asked: int  # how often
    rank: int  # `asked`, and the age of the cache when it was asked for last
    used_ns: int
    turn: int  # of the last use, among all uses


class PatchCache(Generic[Value]):
    """At most `max_bytes` of patches, each for `ttl_s` after its last use.

    First evicted is the patch of the lowest rank, and of equals the one that was used longest ago.
    The rank is the number of times that it was asked for, plus the rank of the last evicted patch
    at that time: what was asked for often, but long ago, goes in the end (LFU with dynamic aging,
    Arlitt et al. 2000). `clock` is `time.monotonic_ns`.
    """

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], int]) -> None:
        assert max_bytes >= 0
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self.evicted = 0
        self._ttl_ns = round(ttl_s * NS_PER_S)
        self._clock = clock
        self._age = 0
        self._turn = 0
        self._patches: dict[bytes, _Patch[Value]] = {}

    def __len__(self) -> int:
        return len(self._patches)

    def asked(self, key: bytes) -> int:
        """How often a patch was asked for; 0 if it is not here."""
        patch = self._patches.get(key)
        return 0 if patch is None else patch.asked

    def ask(self, key: bytes) -> None:
        """A question is about this patch, whether it is needed anew or in the context still."""
        self._drop_old()
        if (patch := self._patches.get(key)) is not None:
            patch.asked += 1
            patch.rank = self._age + patch.asked
            self._use(patch)

    def get(self, key: bytes) -> Value | None:
        """The patch, used now; None if it is missing or expired."""
        self._drop_old()
        patch = self._patches.get(key)
        if patch is None:
            self.misses += 1
            return None
        self.hits += 1
        self._use(patch)
        return patch.value

    def put(self, key: bytes, value: Value, size_bytes: int) -> None:
        """Store a patch of `size_bytes` that was asked for once, unless it is larger than the whole
        cache."""
        self._drop(key)
        if size_bytes > self.max_bytes:
            return
        while self.size_bytes + size_bytes > self.max_bytes:
            least = min(self._patches, key=lambda k: (self._patches[k].rank, self._patches[k].turn))
            self._age = self._patches[least].rank
            self._drop(least)
            self.evicted += 1
        patch = _Patch(value, size_bytes, 1, self._age + 1, 0, 0)
        self._use(patch)
        self._patches[key] = patch
        self.size_bytes += size_bytes

    def _use(self, patch: _Patch[Value]) -> None:
        self._turn += 1
        patch.turn, patch.used_ns = self._turn, self._clock()

    def _drop_old(self) -> None:
        oldest_ns = self._clock() - self._ttl_ns
        for key in [k for k, patch in self._patches.items() if patch.used_ns < oldest_ns]:
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        patch = self._patches.pop(key, None)
        if patch is not None:
            self.size_bytes -= patch.size_bytes
