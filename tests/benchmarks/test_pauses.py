"""Which half of the endpoint benchmark a turn belongs to."""

from __future__ import annotations

import itertools
import zlib

from headstart.benchmarks.pauses import HALVES, JOINED_BY, half_of

SENTENCES = [f"This is sentence {number}." for number in range(12)]


def test_no_sentence_is_in_both_halves() -> None:
    """A turn of two sentences counts only where both belong to the same half."""
    of_half: dict[str | None, set[str]] = {None: set(), **{half: set() for half in HALVES}}
    pairs = [JOINED_BY.join(pair) for pair in itertools.permutations(SENTENCES, 2)]
    for text in (*SENTENCES, *pairs):
        of_half[half_of(text)] |= set(text.split(JOINED_BY))
    assert of_half["tuned"] | of_half["held_out"] == set(SENTENCES)
    assert not of_half["tuned"] & of_half["held_out"]
    assert of_half[None]


def test_the_halves_are_crc32s() -> None:
    """Even is tuned on, as with the prompts, and the same everywhere."""
    for text in SENTENCES:
        assert half_of(text) == HALVES[zlib.crc32(text.encode()) % 2]
