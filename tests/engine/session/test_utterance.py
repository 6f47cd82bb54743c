"""The open utterance: words, views, and their tokens."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.engine.api import Audio, Hearing, TurnRef
from headstart.engine.chat.render import Modality
from headstart.engine.interfaces import View
from headstart.engine.session.utterance import Utterance, to_float
from tests.engine.fakes import FakeTokenizer, FakeWords


def utterance() -> Utterance:
    return Utterance(TurnRef(1), "u", None, 0)


def said(u: Utterance) -> str:
    return "".join(
        "".join(map(chr, s.ids)) if s.modality is Modality.AUDIO else "#"
        for s in u.entry(FakeTokenizer()).segments
    )


def test_words_replace_guesses() -> None:
    """Committed words stay; tentative ones are the newest."""
    u = utterance()
    u.take(FakeWords("What", " iz"), 8000)
    u.take(FakeWords("What is", " the"), 8000)
    assert (u.text, u.samples) == ("What is the", 16_000)


def test_committed_words_may_be_heard_otherwise_behind_a_pause() -> None:
    """Then the new ones are committed, and a view stays behind the words it came with."""
    u = utterance()
    u.take(FakeWords("Look at dis", " hat"), 8000)
    u.add_view(View((300,), "a cat", "cat"))
    u.take(FakeWords("Well, look at this cat.", " It is"), 8000)
    assert said(u) == "Well, look at# this cat. It is"


def test_final_words_are_tentative_until_the_endpoint() -> None:
    """If speech resumes, words committed before the final pass remain."""
    u = utterance()
    u.take(FakeWords("What is", " tea"), 8000)
    u.finish(FakeWords("What is the time?", ""))
    assert (u.committed, u.tentative, u.finished) == ("What is", " the time?", True)


def test_a_final_pass_may_have_other_words() -> None:
    """The committed words are then those that the final pass has too, whole words only; the rest is
    tentative, and when speech resumes the recogniser's committed words continue from there."""
    u = utterance()
    u.take(FakeWords("Please hope", " wide"), 8000)
    u.finish(FakeWords("Please hold while I try.", ""))
    assert (u.committed, u.tentative) == ("Please", " hold while I try.")
    assert u.text == "Please hold while I try."
    u.take(FakeWords("Please hold while", " I"), 8000)
    assert u.text == "Please hold while I"


@pytest.mark.parametrize(
    ("committed", "final", "same"),
    [
        ("", "No.", ""),
        ("No", "No.", ""),
        ("No", "No, no.", ""),
        ("Hold on", "Hold only", "Hold"),
        ("Hold on", "Hold on a moment", "Hold on"),
        ("Hold on", "Hold", "Hold"),
        ("Hold on", "", ""),
    ],
)
def test_committed_words_that_a_final_pass_keeps(committed: str, final: str, same: str) -> None:
    """A word that goes on differently, with a full stop say, is another one."""
    u = utterance()
    u.take(FakeWords(committed, ""), 8000)
    u.finish(FakeWords(final, ""))
    assert (u.committed, u.committed + u.tentative) == (same, final)


def test_a_view_moves_with_the_words_of_a_final_pass() -> None:
    """It stays behind the same word, however much is inserted before."""
    u = utterance()
    u.take(FakeWords("Look at dis", " cat"), 8000)
    u.add_view(View((300,), "a cat", "cat"))
    u.finish(FakeWords("Well, look at this cat", ""))
    assert said(u) == "Well, look at# this cat"
    u.take(FakeWords("Well", " lock"), 8000)
    assert said(u) == "Well# lock"


def test_a_view_keeps_its_place_among_the_words() -> None:
    """It stays behind the words that were committed when it came."""
    u = utterance()
    u.take(FakeWords("Look at", " thus"), 8000)
    u.add_view(View((300,), "a cat", "cat"))
    u.take(FakeWords("Look at this cat", ""), 8000)
    assert said(u) == "Look at# this cat"


def test_read_words_are_not_read_again_for_their_spelling() -> None:
    """The transcript follows the recogniser; what the model reads of the same words does not,
    except for the last one. A view stays behind its word all the same."""
    u = utterance()
    u.take(FakeWords("hello", " there you"), 8000)
    u.add_view(View((300,), "a cat", "cat"))
    u.take(FakeWords("Hello, there", " you are"), 8000)
    assert (u.text, said(u)) == ("Hello, there you are", "hello# there you are")
    assert u.entry(FakeTokenizer(), tentative=False).segments[-1].ids == tuple(b" there")
    u.finish(FakeWords("Hello there. You are?", ""))
    assert (u.text, said(u)) == ("Hello there. You are?", "hello# there you are?")


def test_a_word_heard_otherwise_is_read_anew() -> None:
    """And all behind it, in the recogniser's spelling."""
    u = utterance()
    u.take(FakeWords("", "please Hope wide eye"), 8000)
    u.finish(FakeWords("Please hold, while I try.", ""))
    assert said(u) == "Please hold, while I try."


def test_a_message_does_not_begin_with_a_space() -> None:
    """Whisper's first token does."""
    u = utterance()
    u.take(FakeWords("", " What"), 8000)
    assert said(u) == "What"


def test_pcm_is_scaled_to_one() -> None:
    """s16le goes to [-1, 1)."""
    pcm = np.array([-32768, 0, 16384], dtype="<i2").tobytes()
    floats = to_float(Audio("s", TurnRef(1), 0, pcm, 0))
    np.testing.assert_array_equal(floats, np.array([-1.0, 0.0, 0.5], np.float32))


def test_it_tells_where_its_words_end() -> None:
    """In samples since the session began, not since the utterance did."""
    u = Utterance(TurnRef(1, 2), "u", None, 8000)
    u.take(FakeWords("What is", " tea"), 4000)
    assert u.hearing("s") == Hearing("s", TurnRef(1, 2), "What is", " tea", 12_000)
