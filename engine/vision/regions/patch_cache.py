"""Cache of encoded regions: what questions are often about stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headstart.engine.vision.encoder_cache import EncoderCache, Value


@dataclass(slots=True)
class _Asked:
    times: int
    rank: int  # `times`, and the age of the cache when it was asked for last


class PatchCache(EncoderCache[Value]):
    """At most `max_bytes` of patches, each for `ttl_s` after its last use.

    First evicted is the patch of the lowest rank, and of equals the one that was used longest ago.
    The rank is the number of times that it was asked for, plus the rank of the last evicted patch
    at that time: what was asked for often, but long ago, goes in the end (LFU with dynamic aging,
    Arlitt et al. 2000). `clock` is `time.monotonic_ns`.
    """

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], int]) -> None:
        super().__init__(max_bytes, ttl_s, clock)
        self.evicted = 0
        self._age = 0
        self._asked: dict[bytes, _Asked] = {}

    def asked(self, key: bytes) -> int:
        """How often a patch was asked for; 0 if it is not here."""
        asked = self._asked.get(key)
        return 0 if asked is None else asked.times

    def ask(self, key: bytes) -> None:
        """A question is about this patch, whether it is needed anew or in the context still."""
        self._drop_old()
        if (entry := self._entries.get(key)) is not None:
            asked = self._asked[key]
            asked.times += 1
            asked.rank = self._age + asked.times
            self._use(key, entry)

    def put(self, key: bytes, value: Value, size_bytes: int) -> None:
        """Store a patch of `size_bytes` that was asked for once, unless it is larger than the whole
        cache."""
        super().put(key, value, size_bytes)
        if key in self._entries:
            self._asked[key] = _Asked(1, self._age + 1)

    def _evict(self) -> None:
        # Entries are in the order of their last use, so of equals the first is the one to go.
        least = min(self._entries, key=lambda key: self._asked[key].rank)
        self._age = self._asked[least].rank
        self._drop(least)
        self.evicted += 1

    def _drop(self, key: bytes) -> None:
        super()._drop(key)
        self._asked.pop(key, None)
