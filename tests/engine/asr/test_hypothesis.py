"""headstart.engine.asr.hypothesis: agreement, loops, rates."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.asr.hypothesis import (
    Agreement,
    AgreementSettings,
    Hypothesis,
    Word,
    likely,
    text_of,
    tokens_of,
)

_RULE = AgreementSettings(agree_ms=400, doubt_ms=1000, last_ms=1500, first_ms=0)


def _word(text: str, logprob: float = -0.1) -> Word:
    return Word(f" {text}", tuple(ord(letter) for letter in text), logprob)


def _heard(agreement: Agreement, text: str, at_ms: float, logprob: float = -0.1) -> Agreement:
    words = tuple(_word(word, logprob) for word in text.split())
    return agreement.update(Hypothesis(words, at_ms), _RULE)


def _committed(agreement: Agreement) -> str:
    return text_of(agreement.committed)


def test_nothing_is_committed_at_once() -> None:
    """One hypothesis alone is only shown."""
    agreement = _heard(Agreement(), "hello there friend", 500)
    assert agreement.committed == ()
    assert text_of(agreement.tentative) == " hello there friend"


def test_two_in_a_row_commit_all_but_the_last_word() -> None:
    """What two hypotheses 500 ms apart agree on is committed, the newest's last word is not."""
    agreement = _heard(Agreement(), "hello there friend", 500)
    agreement = _heard(agreement, "hello there friend", 1000)
    assert _committed(agreement) == " hello there"
    assert text_of(agreement.tentative) == " friend"


def test_disagreement_commits_up_to_it() -> None:
    """Words from the first difference on wait, even where later ones are the same."""
    agreement = _heard(Agreement(), "a cat sat down here", 500)
    agreement = _heard(agreement, "a bat sat down here", 1000)
    assert _committed(agreement) == " a"
    # The next hypothesis continues the committed words.
    agreement = _heard(agreement, "bat sat down here now", 1500)
    assert _committed(agreement) == " a bat sat down here"


def test_short_chunks_need_as_much_time() -> None:
    """At 200 ms a word must stand in three hypotheses, for agreement is counted in time."""
    agreement = _heard(Agreement(), "one two", 200)
    agreement = _heard(agreement, "one two", 400)
    assert agreement.committed == ()
    agreement = _heard(agreement, "one two", 600)
    assert _committed(agreement) == " one"


def test_a_flicker_starts_the_time_anew() -> None:
    """A word that went away and came back has not stood since it was first there."""
    agreement = Agreement()
    for at_ms, text in ((200, "one two"), (400, "won two"), (600, "one two"), (800, "one two")):
        agreement = _heard(agreement, text, at_ms)
        assert agreement.committed == ()
    assert _committed(_heard(agreement, "one two", 1000)) == " one"


def test_doubtful_words_wait_longer() -> None:
    """A word whose worst token is unlikely needs `doubt_ms`, and holds up those behind it."""
    agreement = Agreement()
    for at_ms in (500, 1000):
        agreement = _heard(agreement, "one two three", at_ms, logprob=math.log(0.1))
        assert agreement.committed == ()
    assert _committed(_heard(agreement, "one two three", 1500, math.log(0.1))) == " one two"


def test_the_last_word_is_committed_when_it_stands_long() -> None:
    """In a long pause even the last word settles."""
    agreement = Agreement()
    for at_ms in (500, 1000, 1500):
        agreement = _heard(agreement, "stop", at_ms)
        assert agreement.committed == ()
    agreement = _heard(agreement, "stop", 2000)
    assert (_committed(agreement), agreement.tentative) == (" stop", ())


def test_short_beginnings_are_not_committed() -> None:
    """Before `first_ms` of sound nothing is, however long it stood."""
    late = replace(_RULE, first_ms=1200)
    words = (_word("one"), _word("two"))
    agreement = Agreement()
    for at_ms in (200.0, 600.0, 1000.0):
        agreement = agreement.update(Hypothesis(words, at_ms), late)
        assert agreement.committed == ()
    assert _committed(agreement.update(Hypothesis(words, 1400.0), late)) == " one"


def test_rivals_are_bounded() -> None:
    """However long a disagreement lasts, only hypotheses of the last while are kept."""
    agreement = Agreement()
    for step in range(200):
        agreement = _heard(agreement, f"word{step} more", 200.0 * step)
    assert len(agreement.rivals) <= 1 + math.ceil(_RULE.longest_ms / 200)


@given(
    texts=st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=12),
    step_ms=st.sampled_from([200, 500, 1000]),
)
def test_committed_only_grows(texts: list[list[str]], step_ms: int) -> None:
    """Whatever is heard, later committed words begin with the earlier ones."""
    agreement = Agreement()
    for index, letters in enumerate(texts):
        before = agreement.committed
        # As the decoder does: the hypothesis continues what is committed.
        agreement = _heard(agreement, " ".join(letters), index * step_ms)
        assert agreement.committed[: len(before)] == before


def test_hearing_leaves_the_old_agreement_alone() -> None:
    """An agreement is a value: the final pass works on its own copy."""
    before = _heard(Agreement(), "a b c", 500)
    _heard(before, "a b c", 1000)
    assert before.committed == ()
    assert before == _heard(Agreement(), "a b c", 500)


def test_commit_and_drop() -> None:
    """Words can be committed without agreement, and given up with their sound."""
    agreement = _heard(_heard(Agreement(), "a b c d", 500), "a b x d", 1000)
    assert _committed(agreement) == " a b"
    forced = agreement.commit(1)
    assert _committed(forced) == " a b x"
    assert text_of(forced.tentative) == " d"
    assert _committed(forced.drop(2)) == " x"
    assert tokens_of(forced.drop(3).committed) == ()


def test_how_likely_each_word_is() -> None:
    """Its worst part counts, parts that no space divides are one word, and a few are enough."""
    words = [_word("what", -0.1), Word("'s", (1,), -0.7), _word("this?", -0.2)]
    assert likely(words) == pytest.approx((math.exp(-0.7), math.exp(-0.2)))
    assert likely(words[1:]) == pytest.approx((math.exp(-0.7), math.exp(-0.2)))
    assert len(likely(words * 9, at_most=3)) == 3
    assert likely([]) == ()


def test_a_doubtful_full_stop_does_not_make_the_word_doubtful() -> None:
    """Whether "on" is followed by a full stop is another question."""
    word = Word(" on.", (1, 2), math.log(0.3), letters_logprob=math.log(0.9))
    assert likely([word]) == pytest.approx((0.9,))
