"""The spelling in which the language model reads an utterance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.session.spelling import keep_spelling, place_in, same_word

WORDS = st.sampled_from(
    ["hello", "Hello,", '"hello"', "you", "you?", "YOU...", "5", "-5", "5%", "we're", "were", "—"]
)
SPACES = st.sampled_from([" ", "  ", "\t", "\n", "\x1f", "\u00a0", "\u3000"])
TEXTS = st.lists(WORDS | SPACES, max_size=12).map(" ".join) | st.text(max_size=12)
CASED = st.sampled_from([str.upper, str.lower, str.title])
MARKS = st.sampled_from(["", ",", ".", "?", "!", "…"])


@pytest.mark.parametrize(
    ("read", "heard", "kept"),
    [
        ("", "Hello, how are you?", "Hello, how are you?"),
        ("Hello how are", "Hello, how are you?", "Hello how are you?"),
        ("hello How", "Hello, how are", "hello how are"),
        ("It is late. So", "It is late, so stay.", "It is late. so stay."),
        ("I wont go", "I won't go.", "I won't go."),
        ("Add 5 to it", "Add -5 to it.", "Add -5 to it."),
        ("Dow one. Now", "Dial one, now", "Dial one, now"),
        ("One two three", "One, two.", "One two."),
        (" Hello how", "Hello, how", "Hello how"),
        ("Hello how", " Hello, how", " Hello how"),
        ("你好吗", "你好。", "你好。"),
    ],
)
def test_words_stay_as_they_were_read(read: str, heard: str, kept: str) -> None:
    """All but the last that are the same; from the first other word on it is what was heard."""
    assert keep_spelling(read, heard) == kept


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Hello", "hello,", True),
        ("“Stop", "stop!”", True),
        ("¿Qué", "qué", True),
        ("que", "qué", False),
        ("won't", "wont", False),
        ("3:30", "330", False),
        ("5", "5%", False),
        ("5", "-5", False),
        (".5", "5", False),
        ("voice-mail", "voicemail", False),
        ("...", "…", False),
    ],
)
def test_what_counts_as_spelling(one: str, other: str, same: bool) -> None:
    """Letter case and the punctuation around a word; signs and accents mean something."""
    assert same_word(one, other) is same


@given(read=TEXTS, heard=TEXTS)
def test_the_words_read_are_the_words_heard(read: str, heard: str) -> None:
    """Whatever was read before: as many, each the same but for its spelling, the last one as it was
    heard; and to read them again changes nothing."""
    kept = keep_spelling(read, heard)
    words, told = kept.split(), heard.split()
    assert len(words) == len(told)
    assert all(map(same_word, words, told))
    for offset in range(len(heard) + 1):
        assert len(kept[: place_in(kept, heard, offset)].split()) == len(heard[:offset].split())
    assert words[-1:] == told[-1:]
    assert keep_spelling(kept, heard) == kept


@given(words=st.lists(st.from_regex(r"[a-z]{1,5}", fullmatch=True), min_size=1), data=st.data())
def test_no_spelling_takes_back_what_was_read(words: list[str], data: st.DataObject) -> None:
    """Where each hypothesis has the words of the one before and more, only its last word is ever
    read again."""
    read = ""
    lengths = data.draw(st.lists(st.integers(1, len(words)), max_size=6))
    for count in sorted(lengths):
        heard = " ".join(data.draw(CASED)(word) + data.draw(MARKS) for word in words[:count])
        before, read = read.split(), keep_spelling(read, heard)
        stay = before[:-1]
        assert read.split()[: len(stay)] == stay


@pytest.mark.parametrize(
    ("offset", "behind"),
    [
        (0, ""),
        (6, "Hello"),
        (7, "Hello "),
        (10, "Hello how"),
        (15, "Hello how are"),
        (9, "Hello ho"),
    ],
)
def test_places_move_with_the_words(offset: int, behind: str) -> None:
    """Behind as many words in either spelling."""
    assert place_in("Hello how are", "Hello, how are.", offset) == len(behind)
