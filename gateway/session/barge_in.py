"""Speech over an answer: does it mean to end it? A cough does not, nor does "mm-hm".

The answer's sound is held until that is known:

    speech begins ─▶ HELD, the answer's sound stands still (where we play it; a client that plays
                     by itself goes on) ─┬─▶ an interruption: announced, the answer is cancelled
                                         └─▶ nothing said, or it takes too long: the sound goes on,
                                             HELD_ALOUD ─┬─▶ words after all: an interruption
                                                         └─▶ over: forgotten, no event was sent

Words decide, where the recogniser gives words (`InterruptionRule`): one that is more than a sign of
listening interrupts. One word so far may be a guess that changes, so it counts when a pause
confirms it or a second one follows. A hum or a throat that is cleared is recognised as words too
("NMO", "Yes, I was"), but with probabilities that say how unlikely they are: such words do not
count. Models without a transcript leave the length of the speech to decide. Nothing is lost
meanwhile: the engine hears it all.

"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal, Protocol

from headstart.gateway.audio.clock import NS_PER_MS
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.utterance import Standing, Utterance
from headstart.gateway.telemetry.latency import TurnStamps

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


class Answering(Protocol):
    """What speech asks of the session's answers (`gateway.session.responses.ResponseManager`)."""

    @property
    def active(self) -> bool:
        """A response runs in the conversation, or is being cancelled."""
        ...

    @property
    def is_active(self) -> bool:
        """A response runs and is not being cancelled."""
        ...

    @property
    def has_no_output(self) -> bool:
        """A response goes on of which nothing has been sent yet."""
        ...

    def audible(self, now_ns: int) -> bool:
        """A response goes on, or sound of one may still be playing."""
        ...

    def interrupt(self) -> None: ...
    def hold(self, now_ns: int) -> None: ...
    def release(self, now_ns: int) -> None: ...
    def answer_speech(self, stamps: TurnStamps, turn: int, item_id: str, *, said: bool) -> None: ...
    def said(self, turn: int) -> None: ...


class BargeIn:
    """One session's speech over answers. `rule` judges words."""

    def __init__(self, context: SessionContext, rule: InterruptionRule | None = None) -> None:
        self._context = context
        self._rule = rule or InterruptionRule()

    def holds(self, utterance: Utterance, answers: Answering, now_ns: int) -> bool:
        """Whether an utterance that begins is to be held back; then it is."""
        context = self._context
        detection = context.config.turn_detection
        if utterance.by_hand or detection is None or not detection.interrupt_response:
            return False
        if context.interruption != "words" or not answers.audible(now_ns):
            return False
        utterance.standing = Standing.HELD
        answers.hold(now_ns)
        self._tell("possible", utterance)
        return True

    def judge(self, utterance: Utterance, answers: Answering, now_ns: int) -> Meaning:
        """What the words so far mean; the sound goes on as soon as they mean nothing."""
        meaning = self._meaning(utterance, final=utterance.text_is_final)
        if meaning is Meaning.NOTHING:
            self._release(utterance, answers, now_ns)
        return meaning

    def tick(self, utterance: Utterance, answers: Answering, now_ns: int) -> None:
        """Where no words came in the time that is given, the sound goes on."""
        if self.is_late(utterance.began_ns, now_ns):
            self._release(utterance, answers, now_ns)

    def look_again(self, utterance: Utterance | None, answers: Answering, now_ns: int) -> None:
        """What speech was held back for may be over: cancelled, cut, cleared, played to its end.
        Then there is nothing that could stand still for it; its words decide as before."""
        if utterance is not None and not answers.audible(now_ns):
            self._release(utterance, answers, now_ns)

    def is_late(self, since_ns: int, now_ns: int) -> bool:
        """Whether words have been waited for for long enough."""
        return now_ns - since_ns >= self._context.settings.false_interruption_ms * NS_PER_MS

    def is_turn(self, utterance: Utterance, answers: Answering, now_ns: int) -> bool:
        """Whether an utterance that is over is to be answered: one that interrupts, and an "okay"
        when there is no answer left that it could go with."""
        if self._meaning(utterance, final=True) is Meaning.INTERRUPTION:
            return True
        return bool(utterance.text.strip()) and not answers.audible(now_ns)

    def confirm(self, utterance: Utterance, answers: Answering, now_ns: int) -> None:
        """It is speech; whoever calls announces it."""
        self._release(utterance, answers, now_ns)
        utterance.standing = Standing.ANNOUNCED
        self._tell("real", utterance)

    def forget(self, utterance: Utterance, answers: Answering, now_ns: int) -> None:
        """It was nothing."""
        self._release(utterance, answers, now_ns)
        self._tell("false", utterance)

    def _release(self, utterance: Utterance, answers: Answering, now_ns: int) -> None:
        if utterance.standing is Standing.HELD:
            utterance.standing = Standing.HELD_ALOUD
            answers.release(now_ns)

    def _meaning(self, utterance: Utterance, *, final: bool) -> Meaning:
        hearing = utterance.hearing
        return self._rule.judge(
            utterance.text,
            utterance.sound_ms,
            final=final,
            wordless=hearing is not None and hearing.wordless,
            likely=hearing.likely if hearing is not None else (),
        )

    def _tell(self, what: Literal["possible", "real", "false"], utterance: Utterance) -> None:
        context = self._context
        event = context.events.interruption(what, turn=utterance.turn, item_id=utterance.item_id)
        context.send_ours("interruption", event)
