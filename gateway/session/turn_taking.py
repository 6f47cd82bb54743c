"""How speech affects responses, and how the end of a response affects speech.

    speech begins ─▶ announced if no response is audible; else HELD: the response's audio pauses
                     (where the server plays it; a client that plays by itself continues)
    HELD ─┬─▶ an interruption: announced, the response is cancelled
          └─▶ not an interruption, or no decision in time: the audio resumes, HELD_ALOUD
    HELD_ALOUD ─┬─▶ words after all: an interruption
                └─▶ speech over: dropped, no event is sent
    an interruption soon after a revocable endpoint ─▶ the message before it continues, and its
                     answer is withdrawn (`headstart.gateway.session.continuation`)
    speech is over ─▶ a question ─▶ answered, at once or when the active response is over

`InputSpeech` reports speech. Responses end for many reasons (the engine, the TTS, the client), and
none of them reports its end here: `settle` checks the current state after each event of the
session.

"""

from __future__ import annotations

from typing import Literal

from headstart.gateway.audio.clock import NS_PER_MS, engine_samples_to_ms
from headstart.gateway.session.barge_in import GOING_ON, InterruptionRule, Meaning
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.continuation import Continuation
from headstart.gateway.session.idle import Idle
from headstart.gateway.session.responses import ResponseManager
from headstart.gateway.session.utterance import EndedUtterance, Standing, Utterance

ECHO_AT_ONCE_MS = 400  # of sound, at a beginning of speech
ECHO_MS = 3_000  # at most, when words are known
UNHEARD_TURN_MS = 300
"""Speech that the recogniser has not come to counts as words from this length on, where it cannot
be waited for."""
UNHEARD_WAIT_MS = 15_000
"""How long the words of speech that is over are waited for at most, of which none is known yet."""


class TurnTaking:
    """Turn taking of one session. Owns the question that waits for a response, and held speech."""

    def __init__(self, context: SessionContext, responses: ResponseManager) -> None:
        self._context = context
        self._responses = responses
        self._rule, self._going_on = InterruptionRule(), GOING_ON
        self._idle = Idle(context, responses)
        self._continuation = Continuation(context, responses)
        self._held: Utterance | None = None  # not yet classified
        self._is_reported = False  # as a possible interruption, and not as a false one since
        self._waiting: EndedUtterance | None = None  # a question that waits for a response to end
        self._answered: EndedUtterance | None = None  # what the newest response answers
        self._reopened: EndedUtterance | None = None  # the same, if continued speech ended it

    @property
    def may_speculate(self) -> bool:
        """Whether speech that pauses now would be answered at once."""
        return self._context.config.answers_speech and not self._responses.is_active

    # --- speech begins ---------------------------------------------------------------------------

    def begin(self, utterance: Utterance, now_ns: int, *, continues: bool) -> None:
        """Speech begins: announce it, or hold it. `continues`: so soon after a final endpoint that
        it continues the last utterance if nothing was answered yet."""
        self._continuation.consider(utterance, now_ns)
        is_continued = continues and self._responses.has_no_output
        # Answered again if this turns out to be no speech (`withdraw`).
        self._reopened = self._answered if is_continued else None
        if self._context.echo.is_echo(ECHO_AT_ONCE_MS) and not utterance.by_hand:
            # Our own sound comes back. It plays on: who speaks over it is known by their words.
            self._held, utterance.standing = utterance, Standing.HELD_ALOUD
            utterance.is_echo = True
        elif not is_continued and self._is_over_answer(utterance, now_ns):
            self._held, utterance.standing = utterance, Standing.HELD
            self._responses.hold(now_ns)
            self._is_reported = True
            self._report("possible", utterance)
        else:
            self._announce(utterance, now_ns)

    def _is_over_answer(self, utterance: Utterance, now_ns: int) -> bool:
        """Whether it is spoken over a response, so that it has to be classified first."""
        context = self._context
        detection = context.config.turn_detection
        if utterance.by_hand or detection is None or not detection.interrupt_response:
            return False
        if context.interruption != "words":
            return False
        return utterance.before is not None or self._responses.audible(now_ns)

    def _announce(self, utterance: Utterance, now_ns: int) -> None:
        """Tell the client that speech has started."""
        context = self._context
        if utterance.before is not None:
            self._responses.take_back(utterance.before.utterance.turn, now_ns)
        # The speaker continues: the question was not complete. It is answered if this is no speech.
        self._reopened, self._waiting = self._waiting or self._reopened, None
        if utterance.by_hand:
            return
        start_ms = engine_samples_to_ms(utterance.start_sample)
        context.send(context.events.speech_started(utterance.item_id, start_ms))
        detection = context.config.turn_detection
        if detection is not None and detection.interrupt_response:
            self._responses.interrupt()

    # --- what held speech means ------------------------------------------------------------------

    def judge(self, utterance: Utterance, now_ns: int) -> Meaning:
        """Classify the words so far; the audio resumes as soon as they are known to be nothing."""
        meaning = self._meaning(utterance, now_ns, final=utterance.text_is_final)
        if meaning is Meaning.NOTHING:
            self._release(now_ns)
            self._goes_on(utterance)
        return meaning

    def tick(self, now_ns: int) -> None:
        """Resume the audio if no words came in time."""
        if self._held is not None and self.is_late(self._held.began_ns, now_ns):
            self._release(now_ns)
            self._goes_on(self._held)

    def is_late(self, since_ns: int, now_ns: int) -> bool:
        """Whether the wait for words has exceeded its limit."""
        return now_ns - since_ns >= self._context.settings.false_interruption_ms * NS_PER_MS

    def has_waited(self, over: EndedUtterance, now_ns: int) -> bool:
        """Whether held speech that is over is classified now by what has been recognised. While
        nothing has been, or a part is missing, a busy engine has not come to it, and to drop a
        question for that would be worse than to wait: the answer plays on meanwhile. What may
        continue a message waits for no one (`is_turn`)."""
        utterance = over.utterance
        missing = not utterance.text.strip() or over.unheard_ms >= UNHEARD_TURN_MS
        unheard = utterance.before is None and missing
        more_ns = UNHEARD_WAIT_MS * NS_PER_MS if unheard else 0
        return self.is_late(over.stopped_ns + more_ns, now_ns)

    def is_turn(self, over: EndedUtterance, now_ns: int, *, must_end: bool) -> bool:
        """Whether a held utterance that has ended is answered: an interruption is, and so is an
        "okay" if no response is left that it could belong to. So is what may continue a message
        while nothing of it has been recognised, and, if it `must_end` for the next utterance, what
        has not been recognised to its end: to lose a part of it would be worse."""
        utterance = over.utterance
        if self._meaning(utterance, now_ns, final=True) is Meaning.INTERRUPTION:
            return True
        if self._is_echo(utterance, now_ns):
            return False
        is_needed = must_end or (utterance.before is not None and utterance.hearing is None)
        if is_needed and over.unheard_ms >= UNHEARD_TURN_MS:
            return True
        return bool(utterance.text.strip()) and not self._responses.audible(now_ns)

    def confirm(self, utterance: Utterance, now_ns: int) -> bool:
        """Held speech is an interruption, or a turn. Returns whether it is to `join` the message
        before it: a turn of nothing but "okay" does not."""
        is_nothing = self._meaning(utterance, now_ns, final=True) is Meaning.NOTHING
        if (is_nothing and utterance.text.strip()) or not self._continuation.may_join(utterance):
            self._continuation.decline(utterance)
        self._release(now_ns)
        self._held, utterance.standing = None, Standing.ANNOUNCED
        self._is_reported = False
        self._report("real", utterance)
        self._announce(utterance, now_ns)
        return utterance.before is not None

    def join(self, utterance: Utterance) -> EndedUtterance:
        """Announced speech continues the message before it, which is returned."""
        self._continuation.join(utterance)
        assert utterance.continues is not None
        self._reopened = utterance.continues
        return utterance.continues

    def dropped(self, utterance: Utterance) -> None:
        """An utterance becomes no item."""
        self._continuation.dropped(utterance)

    def forget(self, utterance: Utterance, now_ns: int) -> None:
        """Held speech was nothing."""
        self._release(now_ns)
        self._held = None
        self._goes_on(utterance)

    def _release(self, now_ns: int) -> None:
        if self._held is not None and self._held.standing is Standing.HELD:
            self._held.standing = Standing.HELD_ALOUD
            self._responses.release(now_ns)

    def _goes_on(self, utterance: Utterance) -> None:
        """The answer's sound goes on: a client that plays by itself is told, once."""
        if self._is_reported:
            self._is_reported = False
            self._report("false", utterance)

    def _meaning(self, utterance: Utterance, now_ns: int, *, final: bool) -> Meaning:
        hearing = utterance.hearing
        rule = self._rule if utterance.before is None else self._going_on
        meaning = rule.judge(
            utterance.text,
            utterance.sound_ms,
            final=final,
            wordless=hearing is not None and hearing.wordless,
            likely=hearing.likely if hearing is not None else (),
            spread=utterance.timbre.spread if final else None,
        )
        if meaning is Meaning.INTERRUPTION and self._is_echo(utterance, now_ns):
            return Meaning.NOTHING if final else Meaning.UNKNOWN
        return meaning

    def _is_echo(self, utterance: Utterance, now_ns: int) -> bool:
        """Whether it is our own answer that comes back."""
        lasts_ms = (now_ns - utterance.began_ns) / NS_PER_MS + ECHO_AT_ONCE_MS
        return self._context.echo.is_echo(min(lasts_ms, ECHO_MS))

    def _report(self, what: Literal["possible", "real", "false"], utterance: Utterance) -> None:
        context = self._context
        event = context.events.interruption(what, turn=utterance.turn, item_id=utterance.item_id)
        context.send_ours("interruption", event)

    # --- speech is over --------------------------------------------------------------------------

    def ended(self, question: EndedUtterance) -> bool:
        """An utterance becomes an item; returns whether speech may still continue it."""
        return self._continuation.ended(question)

    def end(self, question: EndedUtterance) -> None:
        """An utterance has become an item: answer it if wanted."""
        if question.wants_answer and self._context.config.answers_speech:
            self._waiting = question
            self._answer_waiting()

    def withdraw(self, now_ns: int) -> None:
        """The last utterance was no speech. If it continued a question and ended the response to
        it, that question is answered again."""
        self._waiting, self._reopened = self._waiting or self._reopened, None
        self.settle(now_ns)

    def words(self, turn: int) -> None:
        """Words were recognised in that turn."""
        self._responses.said(turn)

    def engine_lost(self) -> None:
        """Drop the waiting question: the user has to repeat it."""
        self._waiting = self._reopened = None
        self._continuation.engine_lost()

    # --- after whatever has happened -------------------------------------------------------------

    def settle(self, now_ns: int) -> None:
        """If a response, or its playback, is over: end the pause of held speech, whose words decide
        as before, and answer the waiting question. Does nothing while nothing has changed."""
        if self._held is not None and not self._responses.audible(now_ns):
            self._release(now_ns)
        if self._waiting is not None:
            self._answer_waiting()
        self._responses.release_calls(now_ns)

    def look(self, now_ns: int) -> None:
        """Time has passed."""
        self._continuation.look(now_ns)

    def _answer_waiting(self) -> None:
        if self._waiting is None or self._responses.active:
            return
        self._answered, self._waiting = self._waiting, None
        spoken = self._answered.utterance
        self._responses.answer_speech(
            self._answered.stamps,
            spoken.turn,
            spoken.item_id,
            said=spoken.said_something,
            calls_from_ns=self._answered.calls_from_ns,
        )

    def advance(self, now_samples: int, now_ns: int) -> None:
        """Advance to `now_samples` of the session's audio: prompts after a long enough silence."""
        self._idle.look(now_samples, now_ns)
