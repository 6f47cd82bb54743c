"""Which words are shown before they are committed, and read by the language model. No torch here.

A hypothesis changes from chunk to chunk: in spelling most of all, for a comma here is a full stop
there, and at its end, where a word is cut off. What is shown follows slowly. It grows by words that
are likely to stay; it is changed only where later hypotheses have contradicted it for a while. The
language model reads the same words in the spelling it read first (`engine.session.spelling`).
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import takewhile

from headstart.engine.asr.hypothesis import Agreement, Word, plain


@dataclass(frozen=True)
class ShowSettings:
    """`least_logprob`: a new word is shown at once when its worst token is at least as likely, else
    when it has stood for `doubtful_ms`, and the last of a hypothesis for `last_ms`, as it may be
    cut off. `contradicted_ms`: for so long hypotheses say otherwise before what is shown follows,
    and `respelt_ms` where they only have other punctuation or letter case."""

    least_logprob: float = math.log(0.5)
    doubtful_ms: float = 400.0
    last_ms: float = 900.0
    contradicted_ms: float = 400.0
    respelt_ms: float = 900.0


@dataclass(frozen=True)
class Shown:
    """The `words` shown behind the committed ones; since when hypotheses contradict them, and since
    when they spell them otherwise (None: the newest does not)."""

    words: tuple[Word, ...] = ()
    contradicted_since_ms: float | None = None
    respelt_since_ms: float | None = None

    def behind(self, committed: Sequence[Word]) -> Shown:
        """With `committed` words settled at the front: nothing of it where it had others there."""
        if not committed:
            return self
        count = len(committed)
        same = _letters(self.words[:count]) == _letters(committed)
        return replace(self, words=self.words[count:]) if same else Shown()

    def continuing(self, committed: Sequence[Word], heard: Sequence[Word]) -> Shown:
        """Where `heard` takes the place of the `committed` words and of some of those shown: the
        rest, if it can be told."""
        before = (*committed, *self.words)
        behind = _end_in(heard, before)
        return Shown(before[behind:])

    def follow(self, agreement: Agreement, settings: ShowSettings) -> Shown:
        """What is shown after the newest hypothesis of `agreement`."""
        if not agreement.rivals:
            return self
        newest, at_ms = agreement.tentative, agreement.rivals[-1].at_ms
        same = _common(self.words, newest)
        since_ms, kept, next_at = None, self.words, len(self.words)
        if same < len(self.words):
            since_ms = self.contradicted_since_ms
            since_ms = at_ms if since_ms is None else since_ms
            if at_ms - since_ms >= settings.contradicted_ms:
                since_ms, kept, next_at = None, _unfinished(self.words[:same]), same
            else:
                next_at = _end_in(self.words, newest)
        kept, respelt_ms = self._respell(kept, newest[:same], at_ms, settings)
        new = _worth_showing(agreement, next_at, settings)
        if new:
            if kept and len(kept) <= same:  # what follows says how the last word ends
                kept = (*kept[:-1], _ended(kept[-1], newest[len(kept) - 1]))
            kept = _unfinished((*kept, *new))
        return Shown(kept, since_ms, respelt_ms)

    def _respell(
        self,
        kept: tuple[Word, ...],
        newest: Sequence[Word],
        at_ms: float,
        settings: ShowSettings,
    ) -> tuple[tuple[Word, ...], float | None]:
        """`kept` in the spelling of the same words in `newest`, if it has been another for long."""
        pairs = list(zip(kept, newest, strict=False))
        if all(_grown(old, new) is new for old, new in pairs[-1:]) and all(
            old.text == new.text for old, new in pairs[:-1]
        ):
            return kept, None
        since_ms = at_ms if self.respelt_since_ms is None else self.respelt_since_ms
        if at_ms - since_ms < settings.respelt_ms:
            return kept, since_ms
        words, rest = tuple(new for _, new in pairs), kept[len(pairs) :]
        return ((*words, *rest) if rest else _unfinished(words)), None


def _worth_showing(agreement: Agreement, start: int, settings: ShowSettings) -> tuple[Word, ...]:
    """The newest words from `start` on, up to the first one that will likely change."""
    words = agreement.tentative
    for index in range(start, len(words)):
        is_last = index == len(words) - 1
        if not is_last and words[index].logprob >= settings.least_logprob:
            continue
        wanted_ms = settings.last_ms if is_last else settings.doubtful_ms
        if agreement.stood_ms(index) < wanted_ms:
            return words[start:index]
    return words[start:]


def _end_in(shown: Sequence[Word], newest: Sequence[Word]) -> int:
    """Where `newest` goes on behind the last of the words shown, if it has that: else its end."""
    matcher = SequenceMatcher(None, _letters(shown), _letters(newest), autojunk=False)
    blocks = [block for block in matcher.get_matching_blocks() if block.size]
    if blocks and blocks[-1].a + blocks[-1].size == len(shown):
        return blocks[-1].b + blocks[-1].size
    return len(newest)


def _common(shown: Sequence[Word], newest: Sequence[Word]) -> int:
    """How many words both begin with, however they are spelt."""
    pairs = zip(_letters(shown), _letters(newest), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _letters(words: Sequence[Word]) -> list[str]:
    return [plain(word) for word in words]


def _grown(old: Word, new: Word) -> Word:
    """`new` if it is `old` with punctuation behind it, or the same, else `old`."""
    return new if new.text.startswith(old.text) and plain(new) == plain(old) else old


def _ended(old: Word, new: Word) -> Word:
    """`new` if only the punctuation behind it is other than of `old`, else `old`."""
    return new if _unpunctuated(new).text == _unpunctuated(old).text else old


def _unfinished(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Without the punctuation behind the last one."""
    return (*words[:-1], _unpunctuated(words[-1])) if words else words


def _unpunctuated(word: Word) -> Word:
    """Without the punctuation behind it: that depends on what follows."""
    text = word.text
    while len(text) > 1 and unicodedata.category(text[-1]).startswith("P"):
        text = text[:-1]
    return replace(word, text=text) if text.strip() else word
