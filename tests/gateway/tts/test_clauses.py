"""Clauses are cut where a speaker breathes, early, and lose no character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.tts.clauses import CHARS_MAX, LATER_WORDS_MAX, ClauseCutter


def cut(*pieces: str) -> list[str]:
    cutter = ClauseCutter()
    return [clause for piece in pieces for clause in cutter.push(piece)] + cutter.flush()


@given(st.lists(st.text(alphabet="ab 1.,;:!?—\n\"')Dr", max_size=12), max_size=40))
def test_joined_clauses_are_the_text(pieces: list[str]) -> None:
    """Whatever the text and however it comes, nothing is lost, doubled or moved."""
    assert "".join(cut(*pieces)) == "".join(pieces)


@given(st.text(alphabet="ab 1.,;:!?\n", max_size=80), st.data())
def test_the_cuts_do_not_depend_on_the_pieces(text: str, data: st.DataObject) -> None:
    """One piece or many: the same clauses."""
    at = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
    assert cut(*pieces) == cut(text)


@given(
    st.text(alphabet="ab 1.,;:!?\n", max_size=60),
    st.lists(st.integers(0, 60), max_size=6),
    st.one_of(st.integers(0, 60), st.text(alphabet="ab .,", max_size=8)),
)
def test_a_given_first_clause_loses_nothing(text: str, at: list[int], first: int | str) -> None:
    """Whether the text begins with it or not, and however the text comes."""
    given_first = text[:first] if isinstance(first, int) else first
    cutter = ClauseCutter(given_first)
    places = sorted(min(place, len(text)) for place in at)
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    clauses = [clause for piece in pieces for clause in (*cutter.push(piece), *cutter.hurry())]
    clauses += cutter.flush()
    assert "".join(clauses) == text
    if given_first and text.startswith(given_first):
        assert clauses[0] == given_first


@given(st.text(alphabet="abcdef ", max_size=2000))
def test_no_clause_is_longer_than_its_bound(text: str) -> None:
    """Text without punctuation is cut all the same."""
    for clause in cut(text):
        assert len(clause.split()) <= LATER_WORDS_MAX
        assert len(clause.strip()) <= CHARS_MAX


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("Paris. It is big.", ["Paris. ", "It is big."]),
        ("Of course, I can help you with that.", ["Of course,", " I can help you with that."]),
        ("Well, I can help.", ["Well,", " I can help."]),
        ("You're right! It is red.", ["You're right!", " It is red."]),
        ("Yes. It is red.", ["Yes.", " It is red."]),
        ("So I said yes, and left.", ["So I said yes, ", "and left."]),
        ("3,000 of them.", ["3,000 of them."]),
        ("Example.com is a host.", ["Example.com is a host."]),
        ("It is red. I see red, green and blue.", ["It is red. ", "I see red, green and blue."]),
        ("Pi is 3.14, or so they say.", ["Pi is 3.14, ", "or so they say."]),
        ("At 10:30 or 1,000 of them.", ["At 10:30 or 1,000 of them."]),
        ("Ask Dr. Smith, please do.", ["Ask Dr. Smith, ", "please do."]),
        ("Fruit, e.g. an apple. Yes.", ["Fruit,", " e.g. an apple. ", "Yes."]),
        ('He said "no." Then he left.', ['He said "no." ', "Then he left."]),
        ("1. Take a bowl.\n2. Stir.", ["1. Take a bowl.\n", "2. Stir."]),
        ("What? Why?! Go…", ["What?", " Why?! ", "Go…"]),
        ("So am I. You too.", ["So am I. ", "You too."]),
    ],
)
def test_where_a_speaker_breathes(text: str, clauses: list[str]) -> None:
    """Sentences and longer phrases are clauses; numbers, times and abbreviations stay whole."""
    assert cut(*text) == clauses


def test_a_lead_in_waits_for_nothing() -> None:
    """It is a clause with its mark; the one behind it is still cut as a first one is."""
    cutter = ClauseCutter()
    assert cutter.push("Sure") == []
    assert cutter.push(",") == ["Sure,"]
    assert cutter.push(" I can see a red cup on a") == []
    assert cutter.push(" wooden table") == [" I can see a red cup on a "]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("The capital of France", "The capital "),
        ("My favorite season is autumn", "My favorite season "),
        ("I can see a red", "I can see "),
        ("It is a", ""),  # "a" may become "another"
        ("It is a ", "It is "),
        ("Water boils", ""),
        ("Sure, I can see a red", " I can see "),
    ],
)
def test_who_is_in_a_hurry_gets_the_first_phrase(text: str, phrase: str) -> None:
    """Where the next phrase has begun; once, and the rest follows as usual."""
    cutter = ClauseCutter()
    clauses = cutter.push(text)
    hurried = cutter.hurry()
    assert hurried == ([phrase] if phrase else [])
    if phrase:
        assert cutter.hurry() == []
    rest = cutter.push(" thing. And more.") + cutter.flush()
    assert "".join([*clauses, *hurried, *rest]) == text + " thing. And more."


def test_a_clause_is_there_as_soon_as_the_next_word_begins() -> None:
    """Nothing is held back once it is clear that the clause is over."""
    cutter = ClauseCutter()
    assert cutter.push("The capital is Paris.") == []
    assert cutter.push(" ") == []
    assert cutter.push("I") == ["The capital is Paris. "]
