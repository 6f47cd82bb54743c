"""headstart.engine.asr.whole: hypotheses of the whole may open committed words again."""

from __future__ import annotations

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
from headstart.engine.asr.whole import follow_whole

_RULES = AgreementSettings(agree_ms=900, doubt_ms=1500, last_ms=2000, first_ms=0)
_SHOW = ShowSettings(contradicted_ms=1900)
CHUNK_MS = 500.0


def _words(text: str) -> tuple[Word, ...]:
    return tuple(Word(f" {word}", tuple(map(ord, word)), -0.1) for word in text.split())


class _Listener:
    """An utterance whose hypotheses, each of all of it, come every 500 ms."""

    def __init__(self) -> None:
        self.agreement, self.shown, self.at_ms = Agreement(), Shown(), 0.0

    def hear(self, text: str) -> str:
        """All words, committed and shown, after one more hypothesis."""
        self.at_ms += CHUNK_MS
        newest = Hypothesis(_words(text), self.at_ms)
        self.agreement, self.shown = follow_whole(self.agreement, self.shown, newest, _RULES, _SHOW)
        return self.committed + text_of(self.shown.words)

    @property
    def committed(self) -> str:
        return text_of(self.agreement.committed)


def test_what_stood_is_committed() -> None:
    listener = _Listener()
    assert listener.hear("Dow one if") == " Dow one"
    listener.hear("Dow one if you")
    assert listener.committed == ""
    assert listener.hear("Dow one if you wish") == " Dow one if you"
    assert listener.committed == " Dow one if"
    assert listener.hear("Dow one if you wish to") == " Dow one if you wish"
    assert listener.committed == " Dow one if you"


def test_committed_words_that_are_contradicted_for_long_are_opened_again() -> None:
    """With those behind them shown meanwhile; one or two that stray change nothing."""
    listener = _Listener()
    for end in ("if you", "if you wish", "if you wish to"):
        listener.hear(f"Dow one {end}")
    assert listener.committed.startswith(" Dow one")
    for end in ("if you wish to go", "if you wish to go home", "if you wish to go home now"):
        heard = listener.hear(f"Dial one {end}")
        assert heard.startswith(" Dow one if you wish to")
    assert heard == " Dow one if you wish to go home"
    assert listener.hear("Dow one if you wish to go home now or").startswith(" Dow one")
    for _ in range(4):
        assert listener.hear("Dial one if you wish to go home now or later").startswith(" Dow")
    heard = listener.hear("Dial one if you wish to go home now or later")
    assert heard.startswith(" Dial one if you wish to go home now or")
    assert not listener.committed.startswith(" Dow")


def test_committed_words_keep_their_spelling() -> None:
    """A client was sent them; only other words take them back."""
    listener = _Listener()
    for _ in range(4):
        listener.hear("An echo test in this mode")
    before = listener.committed
    assert before == " An echo test in this"
    for _ in range(8):
        listener.hear("An Echo test. In this mode, all")
    assert listener.committed.startswith(before)


@given(st.lists(st.text("ab ", max_size=8), max_size=14))
def test_no_word_is_lost_or_doubled(texts: list[str]) -> None:
    """What is committed and shown is as long as it was, or words of the newest hypothesis follow;
    and who says the same for long has it shown."""
    listener = _Listener()
    for text in texts:
        listener.hear(text)
        for rival in listener.agreement.rivals:
            assert rival.at_ms <= listener.at_ms
    for _ in range(8):
        heard = listener.hear("b a b and the end")
    assert [plain(word) for word in _words(heard)] == "b a b and the end".split()
