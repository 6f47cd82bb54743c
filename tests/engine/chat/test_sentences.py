"""An answer ends with its last whole sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.chat.stopping import SentenceLimit


def passed(text: str, limit: int, sizes: list[int] | None = None) -> str:
    """What comes through, in pieces of `sizes` letters and the rest at once."""
    guard = SentenceLimit(limit)
    out = ""
    for size in sizes or []:
        out += guard.push(text[:size])
        text = text[size:]
    return out + guard.push(text)


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("One. Two! Three? Four.", 2, "One. Two!"),
        ("One. Two.", 2, "One. Two."),
        ('He said "Go!" Then he left.', 1, 'He said "Go!"'),
        ("It is 3.5 metres. Yes. No.", 1, "It is 3.5 metres."),
        ("Dr. Smith met J. R. Brown. Then they left.", 1, "Dr. Smith met J. R. Brown."),
        ("Well... I think so. Yes.", 1, "Well..."),
        ("Steps:\n1. Boil water.\n2. Wait. Done.", 1, "Steps:\n1. Boil water."),
        ("1. Boil water. 2. Wait. 3. Eat. Done.", 2, "1. Boil water. 2. Wait."),
        ("Eat fruit, nuts, etc. daily. Sleep.", 1, "Eat fruit, nuts, etc. daily."),
        ("One. Two. Three. Four.", 0, "One. Two. Three. Four."),
        ("no end at all", 1, "no end at all"),
        ("", 1, ""),
    ],
)
def test_ends_after_the_last_whole_sentence(text: str, limit: int, expected: str) -> None:
    """Titles, initials, decimals and list numbers end no sentence; 0 is no limit."""
    assert passed(text, limit) == expected


@given(
    st.lists(
        st.sampled_from(["Yes.", "No!", "Dr. Who?", "a", '"Go."', "1.", "\n", " "]), max_size=9
    ),
    st.integers(1, 3),
    st.lists(st.integers(1, 4), max_size=20),
)
def test_how_text_is_cut_does_not_matter(words: list[str], limit: int, sizes: list[int]) -> None:
    """Token by token or all at once, the same text comes through."""
    text = " ".join(words)
    assert passed(text, limit, sizes) == passed(text, limit)


def test_nothing_comes_after_the_end() -> None:
    """Once stopped, it says so and lets nothing through."""
    guard = SentenceLimit(1)
    assert guard.push("Yes. ") == "Yes."
    assert guard.stopped
    assert guard.push("More.") == ""
