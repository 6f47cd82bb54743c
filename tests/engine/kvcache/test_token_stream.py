"""A session's tokens: reconcile, soft tokens, sharing, eviction and closing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.errors import ContextFull, StreamClosed, UnknownSoftToken
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Reconciled, Stream

VOCAB = 100


def make_stream(limit: int = 64, num_blocks: int = 64) -> Stream:
    return Stream("s", BlockPool(num_blocks, block_size=4), VOCAB, limit)


def compute(stream: Stream, tokens: int | None = None) -> None:
    """Stand in for the runner: write K/V of the next `tokens` (all) pending tokens."""
    count = stream.pending if tokens is None else tokens
    stream.reserve(count)
    stream.advance(count)


def test_reconcile_keeps_the_common_prefix() -> None:
    """A changed hypothesis costs its changed tail, no more: counts say so, K/V are kept."""
    stream = make_stream()
    assert stream.append([1, 2, 3, 4, 5]) == Reconciled(0, 0, 0, 5)
    compute(stream, 4)
    assert stream.reconcile([2, 3, 9, 9], start=1) == Reconciled(2, 2, 1, 2)
    assert list(stream.tokens) == [1, 2, 3, 9, 9]
    assert (stream.kv_len, stream.pending) == (3, 2)
    assert (stream.prefilled_tokens, stream.rolled_back_kv_tokens) == (4, 1)


def test_reconcile_with_the_same_tokens_changes_nothing() -> None:
    """Reconciling to the present tokens costs nothing."""
    stream = make_stream()
    stream.append([1, 2, 3])
    assert stream.reconcile([1, 2, 3]) == Reconciled(3, 0, 0, 0)
    assert list(stream.tokens) == [1, 2, 3]


def test_truncating_frees_blocks_at_once() -> None:
    """Blocks behind the cut are free before any other step runs."""
    stream = make_stream()
    stream.append(list(range(20)))
    compute(stream)
    assert stream.table.pool.used_blocks == 5
    stream.reconcile([0, 1, 2])
    assert stream.table.pool.used_blocks == 1


def test_a_stream_over_its_limit_is_refused_unchanged() -> None:
    """`ContextFull` states the limit and the wanted length; the tokens do not change."""
    stream = make_stream(limit=5)
    stream.append([1, 2, 3])
    with pytest.raises(ContextFull) as caught:
        stream.reconcile([9, 9, 9], start=3)
    assert (caught.value.limit, caught.value.wanted) == (5, 6)
    assert list(stream.tokens) == [1, 2, 3]
    stream.reconcile([9] * 5)
    assert len(stream) == 5


def test_soft_tokens_are_identified_by_content() -> None:
    """Equal embeddings get equal ids, beyond the vocabulary; different ones differ."""
    stream = make_stream()
    vectors = np.array([[1, 2], [3, 4], [1, 2]], dtype=np.float32)
    ids = stream.soft.intern(vectors)
    assert ids[0] == ids[2] != ids[1]
    assert min(ids) >= VOCAB
    vectors[:] = 0  # the table has a copy of its own
    assert stream.soft.vector(ids[1]).tolist() == [3, 4]
    assert stream.soft.intern(np.array([[3, 4]], dtype=np.float32)) == [ids[1]]
    stream.append([1, *ids])
    assert list(stream.tokens) == [1, *ids]


def test_an_unknown_soft_token_is_refused_and_changes_nothing() -> None:
    """An id beyond the vocabulary without an embedding is a named error."""
    stream = make_stream()
    stream.append([1, 2])
    with pytest.raises(UnknownSoftToken) as caught:
        stream.reconcile([1, VOCAB + 3])
    assert caught.value.token == VOCAB + 3
    assert list(stream.tokens) == [1, 2]


def test_a_closed_stream_holds_nothing_and_takes_nothing() -> None:
    """Closing frees every block; later work is a named error; closing again is harmless."""
    stream = make_stream()
    stream.append([1, 2, 3])
    compute(stream)
    stream.close()
    stream.close()
    assert stream.table.pool.used_blocks == 0
    for act in (lambda: stream.append([1]), lambda: stream.truncate(0)):
        with pytest.raises(StreamClosed):
            act()


@given(st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=20))
def test_reconcile_gives_the_wanted_tokens(wishes: list[list[int]]) -> None:
    """After any sequence of reconciles, tokens are as wanted and the accounting holds."""
    stream = make_stream()
    for turn, wanted in enumerate(wishes):
        start = min(len(stream), turn % 3)
        before = list(stream.tokens)
        kv_before, thrown_before = stream.kv_len, stream.rolled_back_kv_tokens
        done = stream.reconcile(wanted, start)
        assert list(stream.tokens) == before[:start] + wanted
        assert done.kept + done.appended == len(wanted)
        assert len(before) - done.rolled_back + done.appended == len(stream)
        assert kv_before - stream.kv_len == done.rolled_back_kv
        assert stream.rolled_back_kv_tokens - thrown_before == done.rolled_back_kv
        if stream.pending and turn % 2:
            compute(stream, 1 + turn % stream.pending)
        assert stream.prefilled_tokens == stream.kv_len + stream.rolled_back_kv_tokens
        stream.table.pool.check_accounting([stream.table])


def test_recomputing_moves_the_cache_back_and_nothing_else() -> None:
    """Tokens stay; blocks behind the index are free; beyond the cached length nothing happens."""
    stream = make_stream()
    stream.append([1] * 20)
    compute(stream)
    stream.recompute(5)
    assert (len(stream), stream.kv_len, stream.pending) == (20, 5, 15)
    assert stream.rolled_back_kv_tokens == 0
    stream.recompute(9)
    assert stream.kv_len == 5


@pytest.mark.parametrize(
    ("until", "adopted"), [(None, 8), (12, 8), (11, 8), (8, 8), (7, 4), (4, 4), (3, 0)]
)
def test_what_logits_are_wanted_of_is_not_adopted(until: int | None, adopted: int) -> None:
    """If all of a stream is cached, whole blocks are adopted, except the last token's and those
    from the probed index on, whose logits are not cached."""
    first = make_stream()
    first.append([*range(12)])
    compute(first)
    second = Stream("second", first.table.pool, VOCAB, 64)
    second.append([*range(12)])
    assert second.adopt(until) == adopted
    assert (second.kv_len, second.pending) == (adopted, 12 - adopted)
    first.table.pool.check_accounting([*first.tables, *second.tables])


def evicted_stream() -> Stream:
    """Sixteen computed tokens, four of them evicted behind a sink of four, and five pending."""
    stream = make_stream()
    stream.append([*range(16)])
    compute(stream)
    assert stream.evict([(4, 8)], sink=4) is not None
    stream.append([20, 21, 22, 23, 24])
    return stream


def test_nothing_is_adopted_behind_an_eviction() -> None:
    """Other streams with the same tokens have them at other positions, and without the influence of
    the evicted tokens."""
    stream = evicted_stream()
    other = Stream("other", stream.table.pool, VOCAB, 64)
    other.append(stream.tokens)
    compute(other)
    assert stream.adopt() == 0


def test_kv_behind_an_eviction_are_not_shared() -> None:
    """K/V computed behind an eviction are not shared, even with a stream that has the same tokens;
    the sink, as first computed, is."""
    stream = evicted_stream()
    other = Stream("other", stream.table.pool, VOCAB, 64)
    other.append(stream.tokens[:12])
    assert other.adopt() == 4
    compute(other)
    compute(stream)
    other.append(stream.tokens[12:])
    assert other.adopt() == 0


def test_recomputed_blocks_are_registered_by_the_present_tokens() -> None:
    """Once an evicted stream's K/V were dropped and recomputed, streams with its present tokens can
    adopt them, and streams with the evicted ones cannot."""
    stream = evicted_stream()
    stream.recompute(0)
    compute(stream)
    found = {}
    for name, tokens in (("same", stream.tokens), ("old", [*range(16)])):
        other = Stream(name, stream.table.pool, VOCAB, 64)
        other.append(tokens)
        found[name] = other.adopt()
    assert found == {"same": 16, "old": 4}


def test_blocks_computed_after_a_rollback_are_registered_by_the_new_tokens() -> None:
    """A stream with the rolled-back tokens adopts only the blocks before them."""
    stream = make_stream()
    stream.append([*range(9)])
    compute(stream)
    stream.reconcile([50, 51, 52, 53, 54], start=4)
    compute(stream)
    found = {}
    for name, tokens in (("new", stream.tokens), ("old", [*range(9)])):
        other = Stream(name, stream.table.pool, VOCAB, 64)
        other.append(tokens)
        found[name] = other.adopt()
    assert found == {"new": 8, "old": 4}


def test_a_fork_has_embeddings_of_its_own() -> None:
    """A fork starts with the same embeddings; later changes do not affect the other stream."""
    stream = make_stream()
    (picture,) = stream.soft.intern(np.ones((1, 8), dtype=np.float32))
    stream.append([1, picture])
    fork = stream.fork("fork")
    assert picture in fork.soft
    (later,) = fork.soft.intern(np.zeros((1, 8), dtype=np.float32))
    assert later not in stream.soft
    fork.close()
    assert picture in stream.soft


def test_positions_are_recounted_when_kv_are_recomputed() -> None:
    """Behind an eviction positions have a gap. There is none after K/V were dropped, nor if no
    block was free for the copy of the sink."""
    stream = evicted_stream()
    assert stream.axes(0, 17)[0].tolist() == [*range(4, 8), *range(8, 21)]
    stream.recompute(0)
    assert stream.axes(0, 17)[0].tolist() == [*range(17)]
    full = make_stream(num_blocks=4)
    full.append([*range(16)])
    compute(full)
    assert full.evict([(4, 8)], sink=4) is None
    assert (full.kv_len, full.axes(0, 12)[0].tolist()) == (4, [*range(12)])


def test_an_eviction_never_writes_to_shared_blocks() -> None:
    """A fork keeps the original blocks, and a stream with the old tokens adopts only the sink, not
    blocks that were compacted in place."""
    alone = evicted_stream()
    other = Stream("other", alone.table.pool, VOCAB, 64)
    other.append([*range(16)])
    assert other.adopt() == 4
    stream = make_stream()
    stream.append([*range(16)])
    compute(stream)
    fork = stream.fork("fork")
    assert stream.evict([(4, 8)], sink=4) is not None
    assert not set(stream.table.blocks) & set(fork.table.blocks)
    stream.table.pool.check_accounting([*stream.tables, *fork.tables])


def test_units_are_computed_ahead_and_the_rest_with_the_answer() -> None:
    """Only whole units count as work to do before an answer."""
    stream = Stream("s", BlockPool(64, 4), 100, 64, ahead=8)
    expected = {3: 0, 8: 8, 15: 8, 17: 16}
    for length, ahead in expected.items():
        stream.reconcile([1] * length)
        assert (stream.pending, stream.pending_ahead) == (length, ahead)
    stream.reserve(16)
    stream.advance(16)
    assert (stream.pending, stream.pending_ahead) == (1, 0)
    assert stream.fork("f").ahead == 8


def test_what_cannot_be_moved_is_computed_again_behind_an_eviction() -> None:
    """K/V before it stay; tokens behind it are pending, at positions without a gap."""
    pool = BlockPool(64, 4)
    stream = Stream("s", pool, 100, 64, movable=False)
    stream.reconcile(list(range(20)))
    stream.reserve(18)
    stream.advance(18)
    assert stream.evict([(4, 9), (12, 14)], sink=4) is None
    assert list(stream.tokens) == [0, 1, 2, 3, 9, 10, 11, 14, 15, 16, 17, 18, 19]
    assert (stream.kv_len, stream.pending, stream.evicted_tokens) == (4, 9, 7)
    assert stream.axes(0, len(stream))[0].tolist() == list(range(13))
    assert stream.close_gaps(4) is None
    pool.check_accounting(stream.tables)
