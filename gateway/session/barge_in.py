"""Speech over an answer: does it mean to end it? A cough does not, nor does "mm-hm".

Words decide, where the recogniser gives words (`InterruptionRule`): one that is more than a sign of
listening interrupts. One word so far may be a guess that changes, so it counts when a pause
confirms it or a second one follows. A hum or a throat that is cleared is recognised as words too
("NMO", "Yes, I was"), but with probabilities that say how unlikely they are: such words do not
count. Models without a transcript leave the length of the speech to decide. What is done meanwhile
with the answer and its sound: `headstart.gateway.session.turn_taking`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

# Signs of listening, plain: without accents, hyphens and the spaces within. Not "yes", "no" or
# "stop": what may be an answer or a wish is one. A conjunction alone is none yet.
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
    """What speech over an answer is, as far as it has come."""

    UNKNOWN = "unknown"
    NOTHING = "nothing"  # noise, or a sign of listening
    INTERRUPTION = "interruption"


@dataclass(frozen=True)
class InterruptionRule:
    """`sure_words`: so many interrupt before a pause has confirmed them. `wordless_ms`: so much
    sound from the beginning of speech on does where the ears give no words. `least_likely`: a word
    that is less so by the ears does not count: hums heard as words have 0.13 at most
    or are conjunctions, the least likely short wish has 0.21 (docs/endpointing.md)."""

    sure_words: int = 2
    wordless_ms: float = 900.0
    least_likely: float = 0.2

    def judge(
        self,
        text: str,
        sound_ms: float,
        *,
        final: bool,
        wordless: bool = False,
        likely: Sequence[float] = (),
    ) -> Meaning:
        """`text`: the words so far; `likely`: as in `engine.api.Hearing`; `sound_ms`: heard since
        speech began; `final`: a pause has come, and for now no more will follow."""
        if wordless:
            interrupts = sound_ms >= self.wordless_ms
        else:
            words = meaningful_words(text, likely, self.least_likely)
            interrupts = len(words) >= (1 if final else self.sure_words)
        if interrupts:
            return Meaning.INTERRUPTION
        return Meaning.NOTHING if final else Meaning.UNKNOWN


def meaningful_words(
    text: str, likely: Sequence[float] = (), least_likely: float = 0.0
) -> list[str]:
    """The words of `text` that are no signs of listening and that the ears do not doubt, plain.
    Words behind the end of `likely` are not doubted."""
    said = text.split()
    sure = [*likely, *[1.0] * len(said)]
    words = [(_plain(word), p) for word, p in zip(said, sure, strict=False) if _plain(word)]
    left: list[str] = []
    while words:
        for length in range(LONGEST_PHRASE_WORDS, 0, -1):
            if "".join(word for word, _ in words[:length]) in BACKCHANNELS:
                del words[:length]
                break
        else:
            word, probability = words.pop(0)
            if probability >= least_likely:
                left.append(word)
    return left


def _plain(word: str) -> str:
    letters = unicodedata.normalize("NFKD", word.casefold())
    return "".join(letter for letter in letters if letter.isalnum())
