"""engine.asr.adopt: what a final pass leaves of the words that were committed before it."""

from __future__ import annotations

import pytest

from headstart.engine.asr.adopt import adopted
from headstart.engine.asr.hypothesis import Word, text_of


def _words(text: str) -> tuple[Word, ...]:
    return tuple(Word(f" {word}", tuple(map(ord, word)), -0.1) for word in text.split())


@pytest.mark.parametrize(
    ("committed", "final", "left"),
    [
        ("", "Hello there.", ""),
        ("please hold", "Please hold the line.", "Please hold"),
        ("please hope the", "Please hold the line.", "Please hold the"),
        ("please hope", "Please hold the line.", "Please"),
        ("No.", "No, no, no.", "No,"),
        ("something else", "Please hold.", ""),
        ("it was nothing", "", ""),
    ],
)
def test_words_up_to_the_last_common_one_stay(committed: str, final: str, left: str) -> None:
    """With the final pass's case and punctuation, and its words between; the rest is open again."""
    words, _ = adopted(_words(committed), _words(final))
    assert text_of(words).strip() == left


def test_marks_move_with_the_words() -> None:
    """A mark lies behind the same word, or behind the last one before it that is still there."""
    committed, final = _words("a b c d e"), _words("x a b z d e f")
    words, marks = adopted(committed, final, (0, 1, 2, 3, 4, 5))
    assert text_of(words) == " x a b z d e"
    assert marks == (0, 2, 3, 3, 5, 6)
