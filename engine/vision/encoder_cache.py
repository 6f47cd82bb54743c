"""What encoders made of a picture, by the picture's content: seen again, it costs no encoder.

The decoder's side of the same is in `engine.kvcache.block_pool`, where K/V are kept by content.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")
NS_PER_S = 1_000_000_000


@dataclass(slots=True)
class _Kept(Generic[Value]):
    value: Value
    size_bytes: int
    used_ns: int


class EncoderCache(Generic[Value]):
    """At most `max_bytes` of values, each for `ttl_s` after it was last asked for.

    The least recently used one goes first. `clock` is `time.monotonic_ns`.
    """

    def __init__(self, max_bytes: int, ttl_s: float, clock: Callable[[], int]) -> None:
        assert max_bytes >= 0
        self.max_bytes = max_bytes
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0
        self._ttl_ns = round(ttl_s * NS_PER_S)
        self._clock = clock
        self._kept: OrderedDict[bytes, _Kept[Value]] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes) -> Value | None:
        """The value, which counts as used now; None if it is not there or too old."""
        self._drop_old()
        kept = self._kept.get(key)
        if kept is None:
            self.misses += 1
            return None
        self.hits += 1
        kept.used_ns = self._clock()
        self._kept.move_to_end(key)
        return kept.value

    def put(self, key: bytes, value: Value, size_bytes: int) -> None:
        """Keep a value of that size; one larger than everything allowed is not kept."""
        self._drop(key)
        if size_bytes > self.max_bytes:
            return
        while self.size_bytes + size_bytes > self.max_bytes:
            self._drop(next(iter(self._kept)))
        self._kept[key] = _Kept(value, size_bytes, self._clock())
        self.size_bytes += size_bytes

    def _drop_old(self) -> None:
        oldest_ns = self._clock() - self._ttl_ns
        while self._kept:
            key, kept = next(iter(self._kept.items()))
            if kept.used_ns >= oldest_ns:
                return
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.size_bytes -= kept.size_bytes
