"""A stream's positions follow its tokens, however it is cut and continued."""

from __future__ import annotations

import random

import numpy as np

from engine.blocks import BlockPool
from engine.models.tmrope import Delimiters, TmRope
from engine.positions import Place, PlaceKind, Positions
from engine.stream import Stream

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
            places = [Place(PlaceKind.IMAGE, 0, *cell) for cell in np.ndindex(rows, columns)]
            vectors = np.zeros((len(places), 4), np.float32)
            wanted += [BOS, *stream.soft.intern(vectors, places), EOS]
        if at + len(wanted) < stream.limit:
            stream.reconcile(wanted, at)
        fresh = Positions(rule())
        fresh.extend(stream.tokens, [stream.soft.place(token) for token in stream.tokens])
        assert np.array_equal(stream.axes(0, len(stream)), fresh.between(0, len(stream)))


def test_equal_vectors_at_other_places_are_other_tokens() -> None:
    """A flat picture's cells look alike and stand elsewhere: their tokens must differ, or a stream
    would keep K/V that were turned for another place."""
    stream = Stream("s", BlockPool(4, 16), VOCAB, 50, rule())
    places = [Place(PlaceKind.IMAGE, 0, 0, column) for column in range(3)]
    first = stream.soft.intern(np.ones((3, 4), np.float32), places)
    assert len(set(first)) == 3
    assert stream.soft.intern(np.ones((3, 4), np.float32), places) == first
    assert [stream.soft.place(token) for token in first] == places
    assert stream.soft.place(5) is None


def test_without_a_rule_positions_count_from_zero() -> None:
    """Text models: all three axes are the token's place in the stream."""
    stream = Stream("s", BlockPool(4, 16), VOCAB, 50)
    stream.append([5, 6, 7])
    assert stream.axes(1, 3).tolist() == [[1, 2]] * 3
