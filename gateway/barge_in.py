"""Speech over an answer: held back until it is known whether it means to end it.

    speech begins ─▶ HELD, the answer's sound stands still (where we play it; a client that plays
                     by itself goes on) ─┬─▶ an interruption: announced, the answer is cancelled
                                         └─▶ nothing said, or it takes too long: the sound goes on,
                                             HELD_ALOUD ─┬─▶ words after all: an interruption
                                                         └─▶ over: forgotten, no event was sent

Which words interrupt: `gateway.interruption`. Nothing is lost meanwhile: the engine hears it all.
"""

from __future__ import annotations

from typing import Literal, Protocol

from gateway.budget import TurnStamps
from gateway.interruption import InterruptionRule, Meaning
from gateway.media.timebase import NS_PER_MS
from gateway.spoken import Spoken, Standing
from gateway.state import SessionState


class Answering(Protocol):
    """What speech asks of the session's answers (`gateway.answers.Answers`)."""

    @property
    def active(self) -> bool:
        """A response runs in the conversation, or is being cancelled."""
        ...

    @property
    def goes_on(self) -> bool:
        """A response runs and is not being cancelled."""
        ...

    @property
    def is_unsaid(self) -> bool:
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

    def __init__(self, state: SessionState, rule: InterruptionRule | None = None) -> None:
        self._state = state
        self._rule = rule or InterruptionRule()

    def holds(self, spoken: Spoken, answers: Answering, now_ns: int) -> bool:
        """Whether an utterance that begins is to be held back; then it is."""
        state = self._state
        detection = state.config.turn_detection
        if spoken.by_hand or detection is None or not detection.interrupt_response:
            return False
        if state.interruption != "words" or not answers.audible(now_ns):
            return False
        spoken.standing = Standing.HELD
        answers.hold(now_ns)
        self._tell("possible", spoken)
        return True

    def judge(self, spoken: Spoken, answers: Answering, now_ns: int) -> Meaning:
        """What the words so far mean; the sound goes on as soon as they mean nothing."""
        meaning = self._meaning(spoken, final=spoken.text_is_final)
        if meaning is Meaning.NOTHING:
            self._release(spoken, answers, now_ns)
        return meaning

    def tick(self, spoken: Spoken, answers: Answering, now_ns: int) -> None:
        """Where no words came in the time that is given, the sound goes on."""
        if self.is_late(spoken.began_ns, now_ns):
            self._release(spoken, answers, now_ns)

    def look_again(self, spoken: Spoken | None, answers: Answering, now_ns: int) -> None:
        """What speech was held back for may be over: cancelled, cut, cleared, played to its end.
        Then there is nothing that could stand still for it; its words decide as before."""
        if spoken is not None and not answers.audible(now_ns):
            self._release(spoken, answers, now_ns)

    def is_late(self, since_ns: int, now_ns: int) -> bool:
        """Whether words have been waited for for long enough."""
        return now_ns - since_ns >= self._state.settings.false_interruption_ms * NS_PER_MS

    def is_turn(self, spoken: Spoken, answers: Answering, now_ns: int) -> bool:
        """Whether an utterance that is over is to be answered: one that interrupts, and an "okay"
        when there is no answer left that it could go with."""
        if self._meaning(spoken, final=True) is Meaning.INTERRUPTION:
            return True
        return bool(spoken.text.strip()) and not answers.audible(now_ns)

    def confirm(self, spoken: Spoken, answers: Answering, now_ns: int) -> None:
        """It is speech; whoever calls announces it."""
        self._release(spoken, answers, now_ns)
        spoken.standing = Standing.ANNOUNCED
        self._tell("real", spoken)

    def forget(self, spoken: Spoken, answers: Answering, now_ns: int) -> None:
        """It was nothing."""
        self._release(spoken, answers, now_ns)
        self._tell("false", spoken)

    def _release(self, spoken: Spoken, answers: Answering, now_ns: int) -> None:
        if spoken.standing is Standing.HELD:
            spoken.standing = Standing.HELD_ALOUD
            answers.release(now_ns)

    def _meaning(self, spoken: Spoken, *, final: bool) -> Meaning:
        hearing = spoken.hearing
        return self._rule.judge(
            spoken.text,
            spoken.sound_ms,
            final=final,
            wordless=hearing is not None and hearing.wordless,
            likely=hearing.likely if hearing is not None else (),
        )

    def _tell(self, what: Literal["possible", "real", "false"], spoken: Spoken) -> None:
        state = self._state
        event = state.events.interruption(what, turn=spoken.turn, item_id=spoken.item_id)
        state.send_ours("interruption", event)
