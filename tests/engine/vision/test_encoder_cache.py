"""Encoder outputs by content."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.vision.encoder_cache import NS_PER_S, EncoderCache


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def test_the_least_recently_used_goes_when_bytes_run_out() -> None:
    """Asking for a value keeps it; what would not fit at all is not kept and pushes nothing out."""
    cache: EncoderCache[str] = EncoderCache(10, 60, Clock())
    cache.put(b"a", "A", 4)
    cache.put(b"b", "B", 4)
    assert cache.get(b"a") == "A"
    cache.put(b"c", "C", 6)
    assert cache.get(b"b") is None
    cache.put(b"d", "D", 11)
    assert (cache.get(b"a"), cache.get(b"c"), cache.get(b"d")) == ("A", "C", None)
    assert (cache.size_bytes, cache.hits, cache.misses) == (10, 3, 2)


def test_unused_entries_expire() -> None:
    """A value lives as long as it is asked for at least once per time to live."""
    clock = Clock()
    cache: EncoderCache[str] = EncoderCache(10, 60, clock)
    cache.put(b"a", "A", 1)
    cache.put(b"b", "B", 1)
    clock.now_ns = 50 * NS_PER_S
    assert cache.get(b"a") == "A"
    clock.now_ns = 100 * NS_PER_S
    assert cache.get(b"b") is None
    assert cache.get(b"a") == "A"
    assert (len(cache), cache.size_bytes) == (1, 1)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 30)), max_size=60))
def test_bytes_are_never_over_the_bound(moves: list[tuple[int, int, int]]) -> None:
    """Any sequence of values and times: the sum of what is kept is what the books say."""
    clock = Clock()
    cache: EncoderCache[int] = EncoderCache(12, 20, clock)
    for name, size_bytes, passed_s in moves:
        clock.now_ns += passed_s * NS_PER_S
        if cache.get(bytes((name,))) is None:
            cache.put(bytes((name,)), size_bytes, size_bytes)
        assert cache.size_bytes <= 12
        assert cache.size_bytes == sum(entry.value for entry in cache._entries.values())
