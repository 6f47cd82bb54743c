"""headstart.engine.asr.shown: what is shown follows the hypotheses slowly."""

from __future__ import annotations

import math
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.asr.hypothesis import (
    Agreement,
    AgreementSettings,
    Hypothesis,
    Word,
    plain,
    text_of,
)
from headstart.engine.asr.shown import Shown, ShowSettings

_NEVER = AgreementSettings(first_ms=math.inf)
_SOON = AgreementSettings(agree_ms=400, doubt_ms=1000, last_ms=1500, first_ms=0)
_RULE = ShowSettings()
CHUNK_MS = 500.0


def _words(text: str, logprob: float = -0.1) -> tuple[Word, ...]:
    return tuple(Word(f" {word}", tuple(map(ord, word)), logprob) for word in text.split())


class _Listener:
    """An utterance whose hypotheses come every 500 ms."""

    def __init__(self, rule: AgreementSettings = _NEVER) -> None:
        self.rule, self.agreement, self.shown, self.at_ms = rule, Agreement(), Shown(), 0.0

    def hear(self, text: str, logprob: float = -0.1) -> str:
        """All words, committed and shown, after one more hypothesis of the whole."""
        self.at_ms += CHUNK_MS
        before = len(self.agreement.committed)
        newest = Hypothesis(_words(text, logprob)[before:], self.at_ms)
        self.agreement = self.agreement.update(newest, self.rule)
        self.shown = self.shown.behind(self.agreement.committed[before:])
        self.shown = self.shown.follow(self.agreement, _RULE)
        return text_of((*self.agreement.committed, *self.shown.words)).strip()


def test_sure_words_are_shown_at_once_but_the_last() -> None:
    """It may be cut off."""
    assert _Listener().hear("What is the cap") == "What is the"


def test_doubtful_words_are_shown_when_they_have_stood() -> None:
    """And hold up those behind them."""
    for probability in (0.2, 0.45):
        listener = _Listener()
        assert listener.hear("What is the", math.log(probability)) == ""
        assert listener.hear("What is the", math.log(probability)) == "What is"
    assert _Listener().hear("What is the", math.log(0.55)) == "What is"


def test_a_doubtful_word_stands_however_it_is_spelt() -> None:
    """A comma that comes and goes does not start its time anew."""
    listener = _Listener()
    doubtful = math.log(0.2)
    assert listener.hear("So what is the", doubtful) == ""
    assert listener.hear("So, what Is the", doubtful) == "So, what Is"


def test_the_last_word_is_shown_in_a_pause_without_its_punctuation() -> None:
    """A full stop is there because nothing follows yet."""
    listener = _Listener()
    heard = [listener.hear("Turn it off.") for _ in range(3)]
    assert heard == ["Turn it", "Turn it", "Turn it off"]
    assert listener.hear("Turn it off, please. Now") == "Turn it off, please"


def test_other_words_are_shown_when_they_have_been_said_for_long() -> None:
    """One hypothesis that strays takes nothing back; two that agree do, and no later: who heard
    "Do" for "To" reads the rest of the sentence behind the wrong word."""
    listener = _Listener()
    assert listener.hear("At the tone please do") == "At the tone please"
    assert listener.hear("At the town please do it") == "At the tone please do"
    assert listener.hear("At the tone please do it now") == "At the tone please do it"
    assert listener.hear("At the town please do it now") == "At the tone please do it"
    assert listener.hear("At the town please do it now") == "At the town please do it"


def test_what_hypotheses_lose_is_taken_back_later() -> None:
    """Words that are said no more go too, when they have been gone for long."""
    listener = _Listener()
    listener.hear("Thank you very much")
    assert [listener.hear("Thank") for _ in range(2)] == ["Thank you very", "Thank"]


def test_a_comma_for_a_full_stop_takes_nothing_back_at_once() -> None:
    """Punctuation and letter case are followed when they have been other for long."""
    listener = _Listener()
    assert listener.hear("Mute yourself, when you") == "Mute yourself, when"
    assert listener.hear("Mute yourself. When you are") == "Mute yourself, when you"
    assert listener.hear("Mute yourself. When you are m") == "Mute yourself, when you are"
    assert listener.hear("Mute yourself. When you are mute") == "Mute yourself. When you are"


def test_a_full_stop_goes_when_speech_goes_on() -> None:
    """A final pass ends a sentence where a pause was; that costs a token, not those behind it."""
    listener = _Listener()
    listener.hear("Press star for")
    listener.shown = Shown(_words("Press star for help."))
    assert listener.hear("Press star for help or pound") == "Press star for help or"


def test_committed_words_overrule_what_is_shown() -> None:
    """Whatever was shown in their place."""
    listener = _Listener(_SOON)
    listener.hear("a cat sat down")
    assert listener.hear("a bat sat down here") == "a cat sat down"
    assert listener.hear("a bat sat down here now") == "a bat sat down here"
    assert text_of(listener.agreement.committed) == " a bat sat down here"


_TEXTS = st.lists(
    st.lists(st.sampled_from(["a", "A,", "b", "b.", "c", "-"]), max_size=6), max_size=12
)


@given(texts=_TEXTS)
def test_a_word_shown_is_one_that_was_heard(texts: list[list[str]]) -> None:
    """Nothing is made up, and a tentative tail never ends in punctuation that was just heard."""
    listener = _Listener()
    for index, text in enumerate(texts):
        shown = listener.hear(" ".join(text)).split()
        heard = {plain(word) for text in texts[: index + 1] for word in _words(" ".join(text))}
        assert {plain(word) for word in _words(" ".join(shown))} <= heard
        last = shown[-1] if shown else "a"
        assert len(last) == 1 or not unicodedata.category(last[-1]).startswith("P")


@given(texts=_TEXTS)
def test_a_hypothesis_that_stands_is_shown_in_the_end(texts: list[list[str]]) -> None:
    """Whatever was said before, a text that is said for four seconds is what is shown."""
    listener = _Listener()
    for text in texts:
        listener.hear(" ".join(text))
    for _ in range(8):
        shown = listener.hear("one two, three")
    assert shown == "one two, three"
