"""Words that show that a message goes on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.audio.unfinished import (
    Expected,
    expected_by,
    is_open_list,
    is_unfinished,
    may_begin_list,
)


@pytest.mark.parametrize(
    "words",
    [
        "I was wondering, uh",
        "So what I wanted to ask is, uh...",
        "Put milk, eggs,",
        "My sister is coming on Friday and",
        "Ich möchte gern ein",
        "Je voudrais un billet pour",
        "It was about forty euros, so.",
    ],
)
def test_what_breaks_off_is_unfinished(words: str) -> None:
    """A filler, a conjunction, a comma or an article at the end."""
    assert is_unfinished(words)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "What is the capital of France?",
        "My flight was cancelled.",
        "What is this for?",
        "I think so.",
    ],
)
def test_what_is_whole_is_not(words: str) -> None:
    """A question may end with any word."""
    assert not is_unfinished(words)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("What is your phone number?", Expected.NUMBER),
        ("Sure. What's the best number to reach you?", Expected.NUMBER),
        ("Could you give me your order number?", Expected.NUMBER),
        ("Your order number is 12. Anything else?", Expected.ANYTHING),
        ("What is your name?", Expected.ANYTHING),
        ("", Expected.ANYTHING),
    ],
)
def test_the_last_sentence_asks(message: str, expected: Expected) -> None:
    """Only a question for a number expects one."""
    assert expected_by(message) is expected


def test_a_number_needs_its_digits() -> None:
    """Six of them, in figures or words; a reply without any is not counted."""
    assert is_unfinished("Zero two zero.", Expected.NUMBER)
    assert is_unfinished("It's 555.", Expected.NUMBER)
    assert not is_unfinished("555 0142.", Expected.NUMBER)
    assert not is_unfinished("Why do you ask?", Expected.NUMBER)


@given(st.text(max_size=40), st.sampled_from(Expected))
def test_any_text_is_judged(words: str, expected: Expected) -> None:
    """Recognisers write anything."""
    assert is_unfinished(words, expected) in (True, False)


@pytest.mark.parametrize("words", ["Milk, eggs.", "I've been to Spain. Italy.", "Rot, gelb, grün."])
def test_an_item_that_is_not_the_last_leaves_a_list_open(words: str) -> None:
    """Also where the recogniser took it for a sentence."""
    assert is_open_list(words)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "Milk.",
        "Milk, eggs and butter.",
        "Rot, gelb und grün.",
        "Milk, eggs?",
        "I read your message. Thank you very much.",
    ],
)
def test_the_last_item_closes_it(words: str) -> None:
    """So does a question, or more words than an item has."""
    assert not is_open_list(words)


def test_a_short_sentence_that_asks_nothing_may_begin_a_list() -> None:
    """Longer ones and questions less likely do."""
    assert may_begin_list("Put milk.")
    assert not may_begin_list("Which one?")
    assert not may_begin_list("Please put some milk on it.")
    assert not may_begin_list("\u628a\u725b\u5976\u653e\u8fdb\u53bb\u3002")  # a Chinese sentence
    assert not may_begin_list("\u0643\u0645\u061f")  # an Arabic question
    assert not may_begin_list("")
