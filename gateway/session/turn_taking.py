"""What speech does to answers, and what the end of an answer does to speech: all of it is here.

    speech begins ─▶ announced, where no answer is heard; else HELD: the answer's sound stands still
                     (where we play it; a client that plays by itself goes on)
    HELD ─┬─▶ an interruption: announced, the answer is cancelled
          └─▶ nothing was said, or it takes too long: the sound goes on, HELD_ALOUD
    HELD_ALOUD ─┬─▶ words after all: an interruption
                └─▶ over: forgotten, no event was sent
    speech is over ─▶ a question ─▶ answered, at once or when the answer that runs is over

`InputSpeech` reports what is heard. Responses end in many ways (the engine, the voice, the client);
none of them has to be reported: `settle` looks at what is true after each of the session's events.
"""

from __future__ import annotations

from typing import Literal

from headstart.gateway.audio.clock import NS_PER_MS, engine_samples_to_ms
from headstart.gateway.session.barge_in import InterruptionRule, Meaning
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.idle import Idle
from headstart.gateway.session.responses import ResponseManager
from headstart.gateway.session.utterance import EndedUtterance, Standing, Utterance


class TurnTaking:
    """One session's. Owns the question that waits for an answer, and the speech that is held."""

    def __init__(self, context: SessionContext, responses: ResponseManager) -> None:
        self._context = context
        self._responses = responses
        self._rule = InterruptionRule()
        self._idle = Idle(context, responses)
        self._held: Utterance | None = None  # nobody knows yet what it means
        self._waiting: EndedUtterance | None = None  # a question that an answer has to end for
        self._asked: EndedUtterance | None = None  # what the newest answer is for
        self._reopened: EndedUtterance | None = None  # the same, if speech that goes on ended it

    @property
    def may_speculate(self) -> bool:
        """Whether speech that pauses now would be answered at once."""
        return self._context.config.answers_speech and not self._responses.is_active

    # --- speech begins ---------------------------------------------------------------------------

    def begin(self, utterance: Utterance, now_ns: int, *, continues: bool) -> None:
        """Somebody begins to speak: announce it, or hold it back. `continues`: it is what was said
        last that goes on."""
        goes_on = continues and self._responses.has_no_output
        self._reopened = self._asked if goes_on else None  # should it turn out to be nothing
        if not goes_on and self._is_over_answer(utterance, now_ns):
            self._held, utterance.standing = utterance, Standing.HELD
            self._responses.hold(now_ns)
            self._tell("possible", utterance)
        else:
            self._announce(utterance)

    def _is_over_answer(self, utterance: Utterance, now_ns: int) -> bool:
        """Whether what it means is to be waited for."""
        context = self._context
        detection = context.config.turn_detection
        if utterance.by_hand or detection is None or not detection.interrupt_response:
            return False
        return context.interruption == "words" and self._responses.audible(now_ns)

    def _announce(self, utterance: Utterance) -> None:
        """Somebody has begun to speak, and means it."""
        context = self._context
        self._waiting = None  # it goes on talking: the question was not over
        if utterance.by_hand:
            return
        start_ms = engine_samples_to_ms(utterance.start_sample)
        context.send(context.events.speech_started(utterance.item_id, start_ms))
        detection = context.config.turn_detection
        if detection is not None and detection.interrupt_response:
            self._responses.interrupt()

    # --- what held speech means ------------------------------------------------------------------

    def judge(self, utterance: Utterance, now_ns: int) -> Meaning:
        """What the words so far mean; the sound goes on as soon as they mean nothing."""
        meaning = self._meaning(utterance, final=utterance.text_is_final)
        if meaning is Meaning.NOTHING:
            self._release(now_ns)
        return meaning

    def tick(self, now_ns: int) -> None:
        """Where no words came in the time that is given, the sound goes on."""
        if self._held is not None and self.is_late(self._held.began_ns, now_ns):
            self._release(now_ns)

    def is_late(self, since_ns: int, now_ns: int) -> bool:
        """Whether words have been waited for for long enough."""
        return now_ns - since_ns >= self._context.settings.false_interruption_ms * NS_PER_MS

    def is_turn(self, utterance: Utterance, now_ns: int) -> bool:
        """Whether a held utterance that is over is to be answered: one that interrupts, and an
        "okay" when there is no answer left that it could go with."""
        if self._meaning(utterance, final=True) is Meaning.INTERRUPTION:
            return True
        return bool(utterance.text.strip()) and not self._responses.audible(now_ns)

    def confirm(self, utterance: Utterance, now_ns: int) -> None:
        """Held speech is an interruption, or a turn."""
        self._release(now_ns)
        self._held, utterance.standing = None, Standing.ANNOUNCED
        self._tell("real", utterance)
        self._announce(utterance)

    def forget(self, utterance: Utterance, now_ns: int) -> None:
        """Held speech was nothing."""
        self._release(now_ns)
        self._held = None
        self._tell("false", utterance)

    def _release(self, now_ns: int) -> None:
        if self._held is not None and self._held.standing is Standing.HELD:
            self._held.standing = Standing.HELD_ALOUD
            self._responses.release(now_ns)

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

    # --- speech is over --------------------------------------------------------------------------

    def end(self, question: EndedUtterance) -> None:
        """An utterance has become an item: it is answered, if that is wanted."""
        if question.wants_answer and self._context.config.answers_speech:
            self._waiting = question
            self._answer_waiting()

    def withdraw(self, now_ns: int) -> None:
        """What was said last was nothing after all. If it went on from a question and ended the
        answer to it, that question is asked again."""
        self._waiting, self._reopened = self._waiting or self._reopened, None
        self.settle(now_ns)

    def words(self, turn: int) -> None:
        """There are words in that turn."""
        self._responses.said(turn)

    def engine_lost(self) -> None:
        """What waited for an answer has to be said again."""
        self._waiting = None

    # --- after whatever has happened -------------------------------------------------------------

    def settle(self, now_ns: int) -> None:
        """Carry out what follows if an answer, or what is heard of it, is over: there is nothing
        that could stand still for held speech, whose words decide as before; and a question that
        waits is answered. Does nothing while nothing has changed."""
        if self._held is not None and not self._responses.audible(now_ns):
            self._release(now_ns)
        if self._waiting is not None:
            self._answer_waiting()

    def _answer_waiting(self) -> None:
        if self._waiting is None or self._responses.active:
            return
        self._asked, self._waiting = self._waiting, None
        spoken = self._asked.utterance
        self._responses.answer_speech(
            self._asked.stamps, spoken.turn, spoken.item_id, said=bool(spoken.text)
        )

    def advance(self, now_samples: int, now_ns: int) -> None:
        """So much of the session's sound has come: long enough a silence is prompted for."""
        self._idle.look(now_samples, now_ns)
