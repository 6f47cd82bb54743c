"""Which words may be committed: the judgement between the decoder and the listener. No torch here.

Every chunk brings a new hypothesis of the whole open utterance. Its end is guesswork, because the
last word may be cut off; its beginning settles. *Local agreement*: a word is committed when all
hypotheses of the last `agree_ms` have it at the same place and it is not the last word of the
newest. Committed words are forced on later hypotheses, so committed text only grows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

LIKELY_WORDS = 8  # what somebody begins with tells what they want


@dataclass(frozen=True)
class Word:
    """A word, the space before it and the punctuation behind it; `logprob`: its worst token's;
    `letters_logprob`: its worst token's that is not all punctuation (None: the same)."""

    text: str
    tokens: tuple[int, ...]
    logprob: float
    letters_logprob: float | None = None


@dataclass(frozen=True)
class Hypothesis:
    """What the sound up to `at_ms` seemed to say, without the words committed by then."""

    words: tuple[Word, ...]
    at_ms: float


@dataclass(frozen=True)
class AgreementSettings:
    """For how long a word must have stood before it is committed.

    `agree_ms`: as a rule; `doubt_ms`: when its worst token is less likely than `least_logprob`;
    `last_ms`: when it is the newest hypothesis's last word, which may be cut off. Nothing is
    committed before `first_ms` of sound: short beginnings are misheard, in letter case too.
    """

    agree_ms: float = 900.0
    doubt_ms: float = 1500.0
    last_ms: float = 2000.0
    first_ms: float = 1500.0
    least_logprob: float = math.log(0.3)

    def wanted_ms(self, word: Word, is_last: bool) -> float:
        if is_last:
            return self.last_ms
        return self.agree_ms if word.logprob >= self.least_logprob else self.doubt_ms

    @property
    def longest_ms(self) -> float:
        return max(self.agree_ms, self.doubt_ms, self.last_ms)


@dataclass(frozen=True)
class Agreement:
    """`committed` words of the window, and the `rivals`, oldest first."""

    committed: tuple[Word, ...] = ()
    rivals: tuple[Hypothesis, ...] = ()

    @property
    def tentative(self) -> tuple[Word, ...]:
        return self.rivals[-1].words if self.rivals else ()

    @property
    def committed_tokens(self) -> tuple[int, ...]:
        return tokens_of(self.committed)

    def update(self, newest: Hypothesis, settings: AgreementSettings) -> Agreement:
        """The agreement after one more hypothesis, which continues `committed`."""
        rivals = (*self.rivals, newest)
        ready = 0
        words = newest.words if newest.at_ms >= settings.first_ms else ()
        for index, word in enumerate(words):
            wanted_ms = settings.wanted_ms(word, is_last=index == len(words) - 1)
            if newest.at_ms - _stood_since_ms(rivals, index, _tokens) < wanted_ms:
                break
            ready = index + 1
        horizon_ms = newest.at_ms - settings.longest_ms
        # One rival at or before the horizon is enough to show that a word stood that long.
        recent = [rival for rival in rivals if rival.at_ms > horizon_ms]
        older = [rival for rival in rivals if rival.at_ms <= horizon_ms][-1:]
        kept = tuple(replace(rival, words=rival.words[ready:]) for rival in (*older, *recent))
        return Agreement(self.committed + newest.words[:ready], kept)

    def stood_ms(self, index: int) -> float:
        """For how long the newest hypothesis's words up to that one have been said, however they
        were spelt."""
        return self.rivals[-1].at_ms - _stood_since_ms(self.rivals, index, plain)

    def commit(self, count: int) -> Agreement:
        """With the first `count` tentative words committed, agreed upon or not."""
        words = self.tentative[:count]
        rivals = tuple(
            replace(rival, words=rival.words[count:])
            for rival in self.rivals
            if rival.words[:count] == words
        )
        return Agreement(self.committed + words, rivals)

    def drop(self, count: int) -> Agreement:
        """Without the first `count` committed words (their sound is given up)."""
        assert 0 <= count <= len(self.committed), (count, len(self.committed))
        return replace(self, committed=self.committed[count:])


def _stood_since_ms(
    rivals: Sequence[Hypothesis], index: int, key: Callable[[Word], object]
) -> float:
    """Since when, without a break, the words up to `index` have been what the newest one says;
    `key`: what of a word must be the same."""
    newest = rivals[-1]
    wanted = [key(word) for word in newest.words[: index + 1]]
    since_ms = newest.at_ms
    for rival in reversed(rivals[:-1]):
        if [key(word) for word in rival.words[: index + 1]] != wanted:
            break
        since_ms = rival.at_ms
    return since_ms


def _tokens(word: Word) -> tuple[int, ...]:
    return word.tokens


def tokens_of(words: Sequence[Word]) -> tuple[int, ...]:
    """All tokens, in order."""
    return tuple(token for word in words for token in word.tokens)


def text_of(words: Sequence[Word]) -> str:
    """The words as they follow on other text: with the space before the first, if it has one."""
    return "".join(word.text for word in words)


def plain(word: Word) -> str:
    """Its letters and digits, whatever their case; its signs, where it has none."""
    letters = "".join(letter for letter in word.text.casefold() if letter.isalnum())
    return letters or word.text.strip()


def likely(words: Sequence[Word], at_most: int = LIKELY_WORDS) -> tuple[float, ...]:
    """Of each of the first `at_most` words, as spaces part them, its worst token's probability.
    Punctuation does not count: a full stop is often unlikely where the word is sure."""
    parted: list[float] = []
    for word in words:
        worst = word.letters_logprob
        probability = math.exp(word.logprob if worst is None else worst)
        if parted and not word.text.startswith(" "):
            parted[-1] = min(parted[-1], probability)
        elif len(parted) == at_most:
            break
        else:
            parted.append(probability)
    return tuple(parted)
