"""A stream's positions follow its tokens, however it is cut and continued."""

from __future__ import annotations

import random

import numpy as np

from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.positions import MediaKind, MediaPosition, Positions
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.perception.tmrope import Delimiters, TmRope

VOCAB = 100
BOS, EOS = 1, 2


def rule() -> TmRope:
    return TmRope(Delimiters(BOS, EOS))


def test_a_stream_edited_at_random_has_the_positions_of_one_written_at_once() -> None:
    """Cuts and continuations across snapshots and pictures: positions are a function of what the
    stream reads."""
    chance = random.Random(0)
    stream = Stream("s", BlockPool(100, 16), VOCAB, 2_000, rule())
    for _ in range(60):
        at = chance.randint(0, len(stream))
        wanted = [chance.randint(5, 99) for _ in range(chance.randint(0, 90))]
        if chance.random() < 0.5:
            rows, columns = chance.randint(1, 4), chance.randint(1, 9)
            media = [MediaPosition(MediaKind.IMAGE, 0, *cell) for cell in np.ndindex(rows, columns)]
            vectors = np.zeros((len(media), 4), np.float32)
            wanted += [BOS, *stream.soft.intern(vectors, media), EOS]
        if at + len(wanted) < stream.limit:
            stream.reconcile(wanted, at)
        fresh = Positions(rule())
        fresh.extend(stream.tokens, [stream.soft.media_position(token) for token in stream.tokens])
        assert np.array_equal(stream.axes(0, len(stream)), fresh.between(0, len(stream)))


def test_equal_vectors_at_other_positions_are_other_tokens() -> None:
    """The cells of a uniform picture have equal vectors and different positions, so they must be
    different tokens; otherwise K/V rotated for another position would be reused."""
    stream = Stream("s", BlockPool(4, 16), VOCAB, 50, rule())
    media = [MediaPosition(MediaKind.IMAGE, 0, 0, column) for column in range(3)]
    first = stream.soft.intern(np.ones((3, 4), np.float32), media)
    assert len(set(first)) == 3
    assert stream.soft.intern(np.ones((3, 4), np.float32), media) == first
    assert [stream.soft.media_position(token) for token in first] == media
    assert stream.soft.media_position(5) is None


def test_without_a_rule_positions_count_from_zero() -> None:
    """Text models: all three axes are the token's index in the stream."""
    stream = Stream("s", BlockPool(4, 16), VOCAB, 50)
    stream.append([5, 6, 7])
    assert stream.axes(1, 3).tolist() == [[1, 2]] * 3


def evicted(positions: Positions, tokens: list[int], media: list[MediaPosition | None]) -> None:
    """Evict tokens 20 to 90 from both."""
    positions.delete(20, 90, tokens, media)
    del tokens[20:90]
    del media[20:90]


def a_walk() -> tuple[Positions, list[int], list[MediaPosition | None]]:
    """150 tokens with a picture among them, and their positions."""
    tokens = [*range(5, 45), BOS, *range(1000, 1012), EOS, *range(5, 101)]
    cells = iter([MediaPosition(MediaKind.IMAGE, 0, *cell) for cell in np.ndindex(3, 4)])
    media = [next(cells) if token >= 1000 else None for token in tokens]
    positions = Positions(rule())
    positions.extend(tokens, media)
    return positions, tokens, media


def test_what_stands_behind_an_eviction_stays_where_it_is() -> None:
    """Tokens behind an eviction keep their positions, and later ones follow, also after a cut."""
    positions, tokens, media = a_walk()
    before = positions.between(0, 150)
    evicted(positions, tokens, media)
    expected = np.concatenate((before[:, :20], before[:, 90:]), axis=1)
    assert np.array_equal(positions.between(0, 80), expected)
    left = positions.cut(50)
    positions.extend(tokens[left:], media[left:])
    assert np.array_equal(positions.between(0, 80), expected)
    left = positions.cut(20)
    positions.extend(tokens[left:20], media[left:20])
    positions.extend([7], [None])
    assert positions.between(20, 21).tolist() == [[20]] * 3


def test_a_sink_is_moved_up_to_what_follows() -> None:
    """The sink moves by the gap on all axes; after a cut to nothing positions begin at zero."""
    positions, tokens, media = a_walk()
    evicted(positions, tokens, media)
    follows = positions.between(20, 80)
    shift = positions.move_up_sink(20)
    assert shift == follows[0, 0] - 20 == positions.first_position
    assert positions.between(0, 20).tolist() == [list(range(shift, shift + 20))] * 3
    assert np.array_equal(positions.between(20, 80), follows)
    assert positions.cut(20) == 0
    positions.extend(tokens[:20], media[:20])
    assert positions.between(0, 20).tolist() == [list(range(20))] * 3


def test_gaps_are_closed_from_the_newest_back() -> None:
    """Tokens before the gaps move up, the end stays, and distances within a part are kept."""
    positions, tokens, media = a_walk()
    evicted(positions, tokens, media)
    positions.delete(30, 40, tokens, media)
    del tokens[30:40], media[30:40]
    before = positions.between(0, 70)
    assert [at for at, _ in positions.gaps()] == [20, 30]
    shifts = positions.close_gaps()
    after = positions.between(0, 70)
    assert len(shifts) == 30
    assert np.array_equal(after[:, :30], before[:, :30] + shifts)
    assert np.array_equal(after[:, 30:], before[:, 30:])
    assert positions.gaps() == []
    left = positions.cut(45)
    positions.extend(tokens[left:], media[left:])
    assert np.array_equal(positions.between(0, 70), after)


def test_an_eviction_before_another_ones_gap() -> None:
    """Both gaps are known at their present indices. Tokens appended directly, or after a cut
    between the gaps, get the positions they would have had."""
    positions, tokens, media = a_walk()
    whole = positions.between(0, 150)
    for start, end in ((60, 100), (20, 30)):
        positions.delete(start, end, tokens, media)
        del tokens[start:end], media[start:end]
    first = int(whole[:, 30].min() - whole[:, :20].max()) - 1
    second = int(whole[:, 100].min() - whole[:, 30:60].max()) - 1
    assert positions.gaps() == [(20, first), (50, second)]
    expected = np.concatenate((whole[:, :20], whole[:, 30:60], whole[:, 100:]), axis=1)
    assert np.array_equal(positions.between(0, 100), expected)
    positions.extend([7], [None])
    assert positions.between(100, 101).tolist() == [[int(whole.max()) + 1]] * 3
    for length in (90, 51, 45):
        left = positions.cut(length)
        positions.extend(tokens[left:length], media[left:length])
        assert np.array_equal(positions.between(0, length), expected[:, :length])
