"""The cache of encoded regions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.vision.encoder_cache import NS_PER_S
from headstart.engine.vision.regions.patch_cache import PatchCache

KEYS = st.sampled_from([bytes([n]) for n in range(8)])


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def cache_of(max_bytes: int = 30) -> PatchCache[str]:
    return PatchCache(max_bytes, 100.0, Clock())


def test_what_was_asked_for_often_stays() -> None:
    """Though others were used since; of those the one that was used longest ago goes."""
    cache = cache_of()
    for key in (b"often", b"old", b"new"):
        cache.put(key, key.decode(), 10)
    cache.ask(b"often")
    assert cache.get(b"old") == "old"
    assert cache.get(b"new") == "new"
    cache.put(b"newest", "newest", 10)
    assert cache.get(b"old") is None
    assert cache.get(b"often") == "often"
    assert (cache.hits, cache.misses, cache.evicted) == (3, 1, 1)


def test_what_was_asked_for_long_ago_goes_in_the_end() -> None:
    """Each eviction lets newer ones rank higher, so six asks are outlived."""
    cache = cache_of()
    cache.put(b"once", "", 10)
    for _ in range(5):
        cache.ask(b"once")
    assert cache.asked(b"once") == 6
    for number in range(20):
        cache.put(bytes([number]), "", 10)
        if not cache.asked(b"once"):
            break
    assert 6 <= number < 19


def test_a_question_counts_for_what_is_there() -> None:
    """Nothing is kept of what is not."""
    cache = cache_of()
    cache.ask(b"a")
    assert cache.asked(b"a") == 0
    cache.put(b"a", "a", 10)
    cache.ask(b"a")
    assert cache.asked(b"a") == 2
    assert (cache.hits, cache.misses) == (0, 0)


def test_nothing_is_kept_beyond_its_time() -> None:
    """It counts from the last use, also by a question alone."""
    clock = Clock()
    cache: PatchCache[str] = PatchCache(30, 100.0, clock)
    cache.put(b"a", "a", 10)
    cache.put(b"b", "b", 10)
    clock.now_ns = 90 * NS_PER_S
    cache.ask(b"a")
    clock.now_ns = 110 * NS_PER_S
    assert cache.get(b"b") is None
    assert cache.get(b"a") == "a"
    assert (len(cache), cache.size_bytes) == (1, 10)


def test_what_is_larger_than_all_of_it_is_not_kept() -> None:
    """And does not empty it."""
    cache = cache_of()
    cache.put(b"a", "a", 10)
    cache.put(b"b", "b", 31)
    assert (len(cache), cache.get(b"b")) == (1, None)


@given(st.lists(st.tuples(st.sampled_from(["ask", "get", "put"]), KEYS, st.integers(0, 40))))
def test_its_size_is_bounded_and_counted(steps: list[tuple[str, bytes, int]]) -> None:
    """Whatever is asked for, taken or stored."""
    cache, sizes = cache_of(), dict[bytes, int]()
    for step, key, size in steps:
        if step == "put":
            cache.put(key, str(size), size)
            sizes[key] = size
        elif step == "ask":
            cache.ask(key)
        elif (value := cache.get(key)) is not None:
            assert value == str(sizes[key])
        here = [k for k in sizes if cache.asked(k)]
        assert cache.size_bytes == sum(sizes[k] for k in here) <= 30
        assert len(cache) == len(here)
