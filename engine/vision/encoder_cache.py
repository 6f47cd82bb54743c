"""Cache of encoder output by picture content.

Its counterpart for the decoder is `engine.kvcache.block_pool`, which keeps K/V by content.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")
NS_PER_S = 1_000_000_000


@dataclass(slots=True)
class Entry(Generic[Value]):
    """A value and when it was used last."""

    value: Value
    size_bytes: int
    used_ns: int


class EncoderCache(Generic[Value]):
    """At most `max_bytes` of values, each for `ttl_s` after its last use.

    The least recently used is evicted first. `clock` is `time.monotonic_ns`.
    """

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], int]) -> None:
        assert max_bytes >= 0
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self._ttl_ns = round(ttl_s * NS_PER_S)
        self._clock = clock
        self._entries: OrderedDict[bytes, Entry[Value]] = OrderedDict()  # oldest use first

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> Value | None:
        """The value for `key`, marked as used now; None if it is missing or expired."""
        self._drop_old()
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        self._use(key, entry)
        return entry.value

    def put(self, key: bytes, value: Value, size_bytes: int) -> None:
        """Store a value of `size_bytes`, unless it is larger than the whole cache."""
        self._drop(key)
        if size_bytes > self.max_bytes:
            return
        while self.size_bytes + size_bytes > self.max_bytes:
            self._evict()
        self._entries[key] = Entry(value, size_bytes, self._clock())
        self.size_bytes += size_bytes

    def _use(self, key: bytes, entry: Entry[Value]) -> None:
        entry.used_ns = self._clock()
        self._entries.move_to_end(key)

    def _evict(self) -> None:
        """Make room: drop one of the entries, of which there is at least one."""
        self._drop(next(iter(self._entries)))

    def _drop_old(self) -> None:
        oldest_ns = self._clock() - self._ttl_ns
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if entry.used_ns >= oldest_ns:
                return
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.size_bytes -= entry.size_bytes
