"""The sounds that a rule about interruptions is made and judged on."""

from __future__ import annotations

from headstart.benchmarks.turns.overlap_sounds import (
    DEVELOPMENT,
    FRESH,
    HALVES,
    HELD_OUT,
    INTERRUPTIONS,
    LISTENING,
    NOISES_OF_A_KIND,
    seeds,
)
from headstart.gateway.session.barge_in import meaningful_words


def test_no_voice_is_in_both_halves() -> None:
    """What was learnt from a voice is tried on others."""
    assert not set(DEVELOPMENT) & set(HELD_OUT)
    assert not {*DEVELOPMENT, *HELD_OUT} & set(FRESH)
    assert len(DEVELOPMENT) == len(HELD_OUT)


def test_noises_differ_between_the_halves() -> None:
    """Other seeds, other sounds."""
    drawn = [seed for _, first in HALVES.values() for seed in seeds(first)]
    assert len(set(drawn)) == len(drawn) == 3 * NOISES_OF_A_KIND


def test_lines_are_what_they_are_called() -> None:
    """Heard aright, each interruption has a word that means something, and no sign of listening
    has: so whatever goes wrong in the benchmark was misheard, or the rule's."""
    assert all(meaningful_words(line.text) for line in INTERRUPTIONS)
    said = {line.text: meaningful_words(line.text) for line in LISTENING}
    assert not {text: words for text, words in said.items() if words}
