"""A session's tokens: reconcile, soft tokens, and how they end."""

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
    """Stand in for the runner: K/V of the next `tokens` (all) pending tokens."""
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
    """What is already so costs nothing."""
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
    """`ContextFull` names limit and wish; the old tokens stand."""
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
    """Any sequence of reconciles: tokens are as wished, the books balance, counters add up."""
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
    """Tokens and books stay; blocks behind the place are free; forward of the cache is a no-op."""
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
    """Where all that a stream reads is in the cache, whole blocks of it are taken over, but for the
    last token's, and those from the asked place on: nobody else's logits are there to be had."""
    first = make_stream()
    first.append([*range(12)])
    compute(first)
    second = Stream("second", first.table.pool, VOCAB, 64)
    second.append([*range(12)])
    assert second.adopt(until) == adopted
    assert (second.kv_len, second.pending) == (adopted, 12 - adopted)
    first.table.pool.check_accounting([*first.tables, *second.tables])


def evicted_stream() -> Stream:
    """Sixteen tokens computed, four of them forgotten behind a sink of four, five more to come."""
    stream = make_stream()
    stream.append([*range(16)])
    compute(stream)
    assert stream.evict([(4, 8)], sink=4) is not None
    stream.append([20, 21, 22, 23, 24])
    return stream


def test_nothing_is_adopted_behind_an_eviction() -> None:
    """Others that read the same words have them at other positions, and without what was seen of
    the words that are gone."""
    stream = evicted_stream()
    other = Stream("other", stream.table.pool, VOCAB, 64)
    other.append(stream.tokens)
    compute(other)
    assert stream.adopt() == 0


def test_kv_behind_an_eviction_are_not_shared() -> None:
    """What is computed there is this stream's own, though another one reads the same so far and
    would go on with it; the sink, as it was computed, is anybody's."""
    stream = evicted_stream()
    other = Stream("other", stream.table.pool, VOCAB, 64)
    other.append(stream.tokens[:12])
    assert other.adopt() == 4
    compute(other)
    compute(stream)
    other.append(stream.tokens[12:])
    assert other.adopt() == 0


def test_recomputed_blocks_are_registered_by_the_present_tokens() -> None:
    """Once an evicted stream's K/V were given up and computed again they are anybody's: those who
    read the same find them, and who reads the words that were forgotten does not."""
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
    """Who reads the words that were rolled back finds only what stood before them."""
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
    """It begins with the same ones; what it adds or gives up is not the other's."""
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
    """Behind an eviction they have a gap, which the sink is moved up to; they have none once K/V
    are given up, nor where there was no block for the copy of the sink in the first place."""
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
    """A fork goes on with the blocks as they were; and who reads the old words finds none of those
    that were moved up in place, only the sink."""
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
