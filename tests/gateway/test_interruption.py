"""What speech over an answer means, by its words."""

from __future__ import annotations

import pytest

from gateway.interruption import InterruptionRule, Meaning, meaningful_words

RULE = InterruptionRule()


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("", []),
        (" Mm-hmm.", []),
        ("Uh-huh, okay.", []),
        ("I see. Of course!", []),
        ("Voilà, d'accord.", []),
        ("Sí, claro.", []),
        ("Yes.", ["yes"]),
        ("No!", ["no"]),
        ("Okay, stop.", ["stop"]),
        ("I see a dog", ["a", "dog"]),
        ("I want", ["i", "want"]),
        ("...", []),
    ],
)
def test_signs_of_listening_are_no_words(said: str, left: list[str]) -> None:
    """Whatever their spelling; an answer or a wish is one."""
    assert meaningful_words(said) == left


@pytest.mark.parametrize(
    ("said", "final", "meaning"),
    [
        ("", False, Meaning.UNKNOWN),
        ("Yeah", False, Meaning.UNKNOWN),
        ("Wait", False, Meaning.UNKNOWN),
        ("Wait a", False, Meaning.INTERRUPTION),
        ("", True, Meaning.NOTHING),
        ("Yeah", True, Meaning.NOTHING),
        ("Wait", True, Meaning.INTERRUPTION),
    ],
)
def test_one_word_needs_a_pause_and_two_do_not(said: str, final: bool, meaning: Meaning) -> None:
    """A single guess may change; and only a pause tells that nothing was said."""
    assert RULE.judge(said, 400.0, final=final) is meaning


def test_without_words_length_decides() -> None:
    """Where the ears give none: short sounds mean nothing once they are over, long ones do."""
    judge = RULE.judge
    assert judge("", 500.0, final=False, wordless=True) is Meaning.UNKNOWN
    assert judge("", 500.0, final=True, wordless=True) is Meaning.NOTHING
    assert judge("", 900.0, final=False, wordless=True) is Meaning.INTERRUPTION
