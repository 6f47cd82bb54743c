"""The sounds that a rule about interruptions is made and judged on."""

from __future__ import annotations

from headstart.benchmarks import overlap_sounds
from headstart.benchmarks.overlap_sounds import DEVELOPMENT, HELD_OUT, INTERRUPTIONS, LISTENING
from headstart.gateway.session.barge_in import meaningful_words


def test_no_voice_is_in_both_halves() -> None:
    """What was learnt from a voice is tried on others."""
    assert not set(DEVELOPMENT) & set(HELD_OUT)
    assert len(DEVELOPMENT) == len(HELD_OUT)


def test_noises_differ_between_the_halves() -> None:
    """Other seeds, other sounds."""
    parities = [parity for _, parity in overlap_sounds.HALVES.values()]
    assert sorted(parities) == [0, 1]


def test_lines_are_what_they_are_called() -> None:
    """Heard aright, each interruption has a word that means something, and no sign of listening
    has: so whatever goes wrong in the benchmark was misheard, or the rule's."""
    assert all(meaningful_words(line.text) for line in INTERRUPTIONS)
    said = {line.text: meaningful_words(line.text) for line in LISTENING}
    assert not {text: words for text, words in said.items() if words}
