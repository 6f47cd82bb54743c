"""Stop strings in streamed text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.chat.stopping import StopStrings


def run(stops: list[str], pieces: list[str]) -> str:
    guard = StopStrings(stops)
    text = "".join(guard.push(piece) for piece in pieces)
    return text + guard.finish()


@pytest.mark.parametrize(
    ("stops", "text", "expected"),
    [
        (["END"], "one END two", "one "),
        (["END"], "one EN two", "one EN two"),
        (["b", "ab"], "xab", "x"),
        ([], "anything", "anything"),
        (["aab"], "aaab", "a"),
        (["a", "baa"], "baa", "b"),
    ],
)
def test_text_ends_at_the_first_stop(stops: list[str], text: str, expected: str) -> None:
    """The stop string itself is not part of the text; a mere beginning of one is. Of several, the
    one that is complete first counts."""
    assert run(stops, [text]) == expected


@given(st.text("ab", max_size=20), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_pieces_do_not_matter(text: str, stops: list[str]) -> None:
    """Letter by letter gives the same text as all at once."""
    assert run(stops, list(text)) == run(stops, [text])


@given(st.text("ab", max_size=20), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_no_stop_string_ever_leaves(text: str, stops: list[str]) -> None:
    """What was sent holds no stop string, at any time."""
    guard = StopStrings(stops)
    sent = ""
    for letter in text:
        sent += guard.push(letter)
        assert not any(stop in sent for stop in stops)
