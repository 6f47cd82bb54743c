"""Decides whether speech over a response is a barge-in. A cough or "mm-hm" is not.

Where the recogniser gives words, they decide (`InterruptionRule`): a word that is not a backchannel
interrupts. The first recognised word may still change, so a single word counts only when a pause
confirms it or a second word follows. Hums and throat clearing are recognised as words too ("NMO",
"Yes, I was"), but with low probabilities, and improbable words do not count. For models without a
transcript the length of the speech decides. `headstart.gateway.session.turn_taking` handles the
response and its audio in the meantime.

"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

# Backchannels, normalised: without accents, hyphens or inner spaces. "yes", "no" and "stop" are
# missing on purpose: they may be an answer or a request. A conjunction alone does not count yet.
_BY_LANGUAGE = {
    "sounds": "ah aha ahh eh er erm hm hmm hmmm huh mhm mhmm mm mmhm mmhmm mmm oh ohh ooh uh uhhuh "
    "uhm um umm wow",
    "going on": "and but so then well",
    "en": "yeah yep yup okay ok right sure isee gotit iknow ofcourse indeed really exactly cool "
    "nice great alright",
    "de": "ach achso aso genau ja jaja klar stimmt naja soso",
    "fr": "oui ouais daccord bien hein voila",
    "es": "si claro vale ya aja bueno",
    "it": "certo esatto vabene giusto capisco",
    "ru": "да ага угу так понятно ясно",  # noqa: RUF001
}
BACKCHANNELS = frozenset(word for words in _BY_LANGUAGE.values() for word in words.split())
LONGEST_PHRASE_WORDS = 2  # "of course", "got it"


class Meaning(Enum):
    """What speech over a response is, judged by the part received so far."""

    UNKNOWN = "unknown"
    NOTHING = "nothing"  # noise, or a backchannel
    INTERRUPTION = "interruption"


@dataclass(frozen=True)
class InterruptionRule:
    """`sure_words`: this many words interrupt without waiting for a pause. `wordless_ms`: this much
    speech interrupts if the recogniser gives no words; `unheard_ms`: the same where it does, but
    has given none for this speech, not even backchannels. `least_likely`: words below this
    probability do not count. Hums recognised as words have at most 0.13 or are conjunctions; the
    least probable short command has 0.21 (docs/endpointing.md)."""

    sure_words: int = 2
    wordless_ms: float = 900.0
    least_likely: float = 0.2
    unheard_ms: float = math.inf

    def judge(
        self,
        text: str,
        sound_ms: float,
        *,
        final: bool,
        wordless: bool = False,
        likely: Sequence[float] = (),
    ) -> Meaning:
        """`text`: the words so far; `likely`: their probabilities, as in `engine.api.Hearing`;
        `sound_ms`: audio processed since speech began; `final`: there is a pause, so no more words
        are coming for now."""
        if wordless:
            interrupts = sound_ms >= self.wordless_ms
        else:
            words = meaningful_words(text, likely, self.least_likely)
            interrupts = len(words) >= (1 if final else self.sure_words)
            if not text.strip() and not final:
                interrupts = sound_ms >= self.unheard_ms
        if interrupts:
            return Meaning.INTERRUPTION
        return Meaning.NOTHING if final else Meaning.UNKNOWN


GOING_ON = InterruptionRule(sure_words=1, wordless_ms=600.0, unheard_ms=1000.0)
"""For speech right after an endpoint that may have come too early, when going on is likely. The
recogniser shows a first word no sooner than a second has begun, or the first has stood for 0.9 s.
"""


def meaningful_words(
    text: str, likely: Sequence[float] = (), least_likely: float = 0.0
) -> list[str]:
    """The normalised words of `text` that are not backchannels and have at least the probability
    `least_likely`. Words beyond the end of `likely` count as certain."""
    said = text.split()
    sure = [*likely, *[1.0] * len(said)]
    words = [(_plain(word), p) for word, p in zip(said, sure, strict=False) if _plain(word)]
    meaningful: list[str] = []
    while words:
        for length in range(LONGEST_PHRASE_WORDS, 0, -1):
            if "".join(word for word, _ in words[:length]) in BACKCHANNELS:
                del words[:length]
                break
        else:
            word, probability = words.pop(0)
            if probability >= least_likely:
                meaningful.append(word)
    return meaningful


def _plain(word: str) -> str:
    letters = unicodedata.normalize("NFKD", word.casefold())
    return "".join(letter for letter in letters if letter.isalnum())
