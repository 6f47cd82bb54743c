"""Decides whether speech over a response is a barge-in. A cough or "mm-hm" is not.

Where the recogniser gives words, they decide (`InterruptionRule`):

    a word that asks to stop, or begins a question ("stop", "wait", "can")   at once
    two likely words that are not backchannels                              at once
    one such word                                                           at the next pause,
                                                                            unless it is a hum

Hums are recognised as words too: mostly unlikely ones ("NMO", "Yes, I was"), of neural voices also
likely ones ("Bye!" with 0.92). So for a word that does not ask to stop it counts how far the timbre
of the sound moves (`headstart.gateway.audio.timbre`): hardly, and it is a hum; a little, and the
word has to be likely. For models without a transcript the length of the speech decides.
`headstart.gateway.session.turn_taking` handles the response and its audio in the meantime.

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
    "as they are misheard": "yet yeb godit godis",  # "yep" and "got it" of the development voices
    "en": "yeah yep yup okay ok right sure isee gotit iknow ofcourse indeed really exactly cool "
    "iseeyou nice great alright thatsright thatstrue makessense noway goodpoint interesting "
    "absolutely definitely",
    "de": "ach achso aso genau ja jaja klar stimmt naja soso",
    "fr": "oui ouais daccord bien hein voila",
    "es": "si claro vale ya aja bueno",
    "it": "certo esatto vabene giusto capisco",
    "ru": "да ага угу так понятно ясно",  # noqa: RUF001
}
BACKCHANNELS = frozenset(word for words in _BY_LANGUAGE.values() for word in words.split())
LONGEST_PHRASE_WORDS = 3  # "of course", "I see you"

# Words by which people take the turn, normalised: alone they are meant, and as the first word of a
# sentence they begin no backchannel.
_TURNS_BY_LANGUAGE = {
    "en": "stop wait no hey what pause sorry enough hold please can could would tell quiet listen "
    "excuse why who where how when cancel help hello again shut silence actually",
    "de": "stop stopp halt warte warten nein moment entschuldigung wer wie warum kannst konnen",
    "fr": "stop arrete arretez attends attendez non pardon pourquoi comment qui peux pouvez",
    "es": "para pare espera espere perdon quien como porque puedes puede",
    "it": "ferma fermati aspetta aspetti scusa scusi chi perche puoi puo",
    "ru": "стоп стой подожди подождите нет извини извините кто почему можешь можете",
}
TURN_WORDS = frozenset(word for words in _TURNS_BY_LANGUAGE.values() for word in words.split())


class Meaning(Enum):
    """What speech over a response is, judged by the part received so far."""

    UNKNOWN = "unknown"
    NOTHING = "nothing"  # noise, or a backchannel
    INTERRUPTION = "interruption"


@dataclass(frozen=True)
class InterruptionRule:
    """What an interruption needs. Chosen on voices that are not those of the report
    (docs/endpointing.md).

    Attributes:
        sure_words: this many likely words interrupt at once.
        wordless_ms: this much speech interrupts if the recogniser gives no words.
        least_likely: words below this probability do not count; the least probable short command
            has 0.21.
        likely: probability that a word needs which does not take the turn by itself, and a turn
            word that interrupts without a pause.
        hum_spread: sound whose timbre moves no further is a hum (`Timbre.spread`), unless a turn
            word is recognised.
        word_spread: from there on, or where the spread is not known, a word need not be likely.
        unheard_ms: this much speech interrupts if the recogniser, which gives words, has given
            none for it, not even backchannels.
    """

    sure_words: int = 2
    wordless_ms: float = 900.0
    least_likely: float = 0.2
    likely: float = 0.4
    hum_spread: float = 2.0
    word_spread: float = 2.8
    unheard_ms: float = math.inf

    def judge(
        self,
        text: str,
        sound_ms: float,
        *,
        final: bool,
        wordless: bool = False,
        likely: Sequence[float] = (),
        spread: float | None = None,
    ) -> Meaning:
        """`text`: the words so far; `likely`: their probabilities, as in `engine.api.Hearing`;
        `sound_ms`: audio processed since speech began; `final`: there is a pause, so no more words
        are coming for now; `spread`: of the sound's timbre, None if that is not known."""
        if wordless:
            interrupts = sound_ms >= self.wordless_ms
        elif final:
            interrupts = self._meant(text, likely, spread)
        elif text.strip():
            interrupts = self._surely_meant(text, likely)
        else:
            interrupts = sound_ms >= self.unheard_ms
        if interrupts:
            return Meaning.INTERRUPTION
        return Meaning.NOTHING if final else Meaning.UNKNOWN

    def _meant(self, text: str, likely: Sequence[float], spread: float | None) -> bool:
        """Whether words behind which there is a pause interrupt."""
        words = meaningful_words(text, likely, self.least_likely)
        if any(word in TURN_WORDS for word, _ in words):
            return True
        if spread is None or spread >= self.word_spread:
            return bool(words)
        probable = sum(probability >= self.likely for _, probability in words)
        return probable >= (self.sure_words if spread <= self.hum_spread else 1)

    def _surely_meant(self, text: str, likely: Sequence[float]) -> bool:
        """Whether words that may go on, and change, interrupt already."""
        words = meaningful_words(text, likely, self.least_likely)
        if not words:
            return False
        first, probability = words[0]
        if first in TURN_WORDS and probability >= self.likely:
            return True
        takes_turn = any(word in TURN_WORDS for word, _ in words)
        probable = sum(probability >= self.likely for _, probability in words)
        return len(words) >= self.sure_words and (takes_turn or probable >= self.sure_words)


GOING_ON = InterruptionRule(sure_words=1, likely=0.2, wordless_ms=600.0, unheard_ms=1000.0)
"""For speech right after an endpoint that may have come too early, when going on is likely. The
recogniser shows a first word no sooner than a second has begun, or the first has stood for 0.9 s.
"""


def meaningful_words(
    text: str, likely: Sequence[float] = (), least_likely: float = 0.0
) -> list[tuple[str, float]]:
    """The words of `text`, normalised, each with its probability, that are not backchannels and
    have at least the probability `least_likely`. Words beyond the end of `likely` count as
    certain."""
    said = text.split()
    sure = [*likely, *[1.0] * len(said)]
    words = [(_plain(word), p) for word, p in zip(said, sure, strict=False) if _plain(word)]
    meaningful: list[tuple[str, float]] = []
    while words:
        for length in range(LONGEST_PHRASE_WORDS, 0, -1):
            if "".join(word for word, _ in words[:length]) in BACKCHANNELS:
                del words[:length]
                break
        else:
            word, probability = words.pop(0)
            if probability >= least_likely:
                meaningful.append((word, probability))
    return meaningful


def _plain(word: str) -> str:
    letters = unicodedata.normalize("NFKD", word.casefold())
    return "".join(letter for letter in letters if letter.isalnum())
