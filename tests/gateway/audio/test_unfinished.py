"""Words that show that a message goes on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.audio.unfinished import Expected, expected_by, is_unfinished


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
