"""A session's speech: what the listener notices becomes protocol events and engine commands.

Speech over an answer is held back from the client until it is known what it is
(`gateway.interruption`): a cough or "mm-hm" passes without an event, and the answer goes on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from engine import api
from gateway.barge_in import Answering, BargeIn
from gateway.budget import TurnStamps
from gateway.client_clock import ClientClock
from gateway.detection import detection_of
from gateway.endpoint import Pace
from gateway.interruption import Meaning
from gateway.listening import (
    Detection,
    Dropped,
    Hushed,
    Listener,
    ListenEvent,
    ListeningSettings,
    Resumed,
    SpeechChunk,
    SpeechStarted,
    SpeechStopped,
    StopCause,
    UtteranceTooLongError,
)
from gateway.media.timebase import hear_ms, hear_ms_exact
from gateway.open_utterance import Arrival
from gateway.spoken import Spoken
from gateway.state import SessionState
from gateway.transcripts import Transcripts

HELD_CHUNK_MS = 200


@dataclass(frozen=True, slots=True)
class _Over:
    """An utterance that is over; `wants_answer`: unless the client ended it by hand."""

    spoken: Spoken
    event: SpeechStopped
    stopped_ns: int
    stamps: TurnStamps
    wants_answer: bool


class SpeechIn:
    """Owns the listener. `stopwatch` measures what receiving costs."""

    def __init__(self, state: SessionState, stopwatch: Callable[[], int]) -> None:
        self._state = state
        self._stopwatch = stopwatch
        self._pace = Pace()
        settings = ListeningSettings(chunk_ms=state.settings.chunk_ms)
        self._listener = Listener(self._detection(), settings)
        self._open: Spoken | None = None
        self._undecided: _Over | None = None  # over, held, its final words still to come
        self._waiting: _Over | None = None  # a question that an answer has to end for
        self._asked: _Over | None = None  # what the newest answer is for
        self._resay: _Over | None = None  # the same, if speech that goes on ended that answer
        self._transcripts = Transcripts(state)
        self._barge_in = BargeIn(state)
        self._feed_ns = 0  # the last packet's time in the listener
        self._buffer_ns: int | None = None  # and in a receive buffer, if it came over a track
        self._client_clock = ClientClock()

    @property
    def clock_samples(self) -> int:
        return self._listener.clock_samples

    def item_id_of(self, turn: int) -> str | None:
        spoken = self._spoken(turn)
        return spoken.item_id if spoken is not None else None

    # --- audio and requests from the client ------------------------------------------------------

    def feed(self, pcm: bytes, captured_ms: float | None, answers: Answering, now_ns: int) -> None:
        """One packet. Raises the listener's errors."""
        captured_ns = self._client_clock.to_ours(captured_ms, now_ns)
        began_ns = self._stopwatch()
        events = self._listener.feed(pcm, now_ns, captured_ns)
        self._feed_ns, self._buffer_ns = self._stopwatch() - began_ns, None
        self._state.metrics.audio("received", len(pcm) / 48)  # bytes in a ms of s16 at 24 kHz
        if events:
            self._handle(events, answers, now_ns)

    def hear(self, pcm: bytes, arrival: Arrival | None, answers: Answering, now_ns: int) -> None:
        """Sound out of a track's receive buffer; what no packet brought has no arrival."""
        came = arrival or Arrival(now_ns, None)
        began_ns = self._stopwatch()
        try:
            events = self._listener.feed(pcm, came.received_ns, came.captured_ns)
        except UtteranceTooLongError:  # push-to-talk: a track goes on, whoever forgot it
            self._state.metrics.audio("dropped", len(pcm) / 48)
            return
        self._feed_ns = self._stopwatch() - began_ns
        self._buffer_ns = now_ns - came.received_ns
        fate = "inserted" if arrival is None else "received"
        self._state.metrics.audio(fate, len(pcm) / 48)
        self._handle(events, answers, now_ns)

    def commit(self, answers: Answering, now_ns: int) -> None:
        """The client ends the utterance; no answer follows by itself."""
        events = self._listener.commit()
        self._handle(events, answers, now_ns, answer=False)

    def clear(self, answers: Answering, now_ns: int) -> None:
        self._handle(self._listener.clear(), answers, now_ns)
        self._state.send(self._state.events.cleared())

    def tick(self, answers: Answering, now_ns: int) -> None:
        if self._open is None and self._undecided is None:
            return  # nobody speaks
        self._handle(self._listener.tick(now_ns), answers, now_ns)
        over = self._undecided
        spoken = over.spoken if over is not None else self._open
        if spoken is not None:
            self._barge_in.tick(spoken, answers, now_ns)
        if over is not None and self._barge_in.is_late(over.stopped_ns, now_ns):
            self._decide(answers, now_ns)

    def configure(self, answers: Answering, now_ns: int) -> None:
        """Follow a change of the session's settings."""
        self._cut_chunks()
        if self._detecting != (self._state.config.turn_detection, self._state.endpointing):
            self._handle(self._listener.set_detection(self._detection()), answers, now_ns)

    def _cut_chunks(self) -> None:
        """How much sound the engine gets at a time: little of what an answer is held for."""
        options = self._state.config.gateway
        wanted_ms = options.chunk_ms if options is not None else None
        chunk_ms: int = wanted_ms or self._state.settings.chunk_ms
        if self._open is not None and self._open.is_held:
            chunk_ms = min(chunk_ms, HELD_CHUNK_MS)
        self._listener.settings = dataclasses.replace(self._listener.settings, chunk_ms=chunk_ms)

    # --- what the listener noticed ---------------------------------------------------------------

    def _handle(
        self,
        events: Sequence[ListenEvent],
        answers: Answering,
        now_ns: int,
        *,
        answer: bool = True,
    ) -> None:
        state = self._state
        for event in events:
            match event:
                case SpeechStarted():
                    self._started(event, answers, now_ns)
                case SpeechChunk():
                    state.tell(
                        api.Audio(
                            state.session_id,
                            event.ref,
                            event.start_sample,
                            event.pcm,
                            event.received_ns,
                        )
                    )
                case Hushed():
                    self._hushed(event, answers)
                case Resumed():
                    self._resumed(event)
                case SpeechStopped():
                    self._stopped(event, answers, now_ns, answer=answer)
                case Dropped():
                    self._dropped(event, answers, now_ns)
                case _:
                    assert_never(event)

    def _started(self, event: SpeechStarted, answers: Answering, now_ns: int) -> None:
        state = self._state
        self._decide(answers, now_ns)
        state.turns.begin(event.ref)
        spoken = self._open = Spoken(
            turn=event.ref.turn,
            item_id=state.ids.item(),
            start_sample=event.start_sample,
            speech_sample=event.speech_sample,
            began_ns=now_ns,
            by_hand=event.push_to_talk,
        )
        goes_on = event.continues and answers.is_unsaid
        self._resay = self._asked if goes_on else None  # should it turn out to be nothing
        if goes_on or not self._barge_in.holds(spoken, answers, now_ns):
            self._announce(spoken, answers)
        self._cut_chunks()
        state.tell(api.BeginSpeech(state.session_id, event.ref, spoken.item_id, event.start_sample))

    def _announce(self, spoken: Spoken, answers: Answering) -> None:
        """Somebody has begun to speak, and means it."""
        state = self._state
        self._waiting = None  # it goes on talking: the question was not over
        if spoken.by_hand:
            return
        started = state.events.speech_started(spoken.item_id, hear_ms(spoken.start_sample))
        state.send(started)
        detection = state.config.turn_detection
        if detection is not None and detection.interrupt_response:
            answers.interrupt()

    def _confirm(self, spoken: Spoken, answers: Answering, now_ns: int) -> None:
        """Speech that was held back is an interruption, or a turn."""
        self._barge_in.confirm(spoken, answers, now_ns)
        self._cut_chunks()
        self._announce(spoken, answers)
        if spoken.hearing is not None:
            self._transcripts.show(spoken, spoken.hearing)
        if spoken is self._open and spoken.hushed is not None:
            self._tell_hush(spoken.hushed, answers)  # now there is something to speculate on

    def _hushed(self, event: Hushed, answers: Answering) -> None:
        assert self._open is not None
        if self._open.hushed is None:
            self._state.turns.hush(event.ref)
        self._open.hushed = event
        self._tell_hush(event, answers)

    def _tell_hush(self, event: Hushed, answers: Answering) -> None:
        state = self._state
        wanted = state.config.answers_speech and not answers.goes_on
        speculate = state.sampling() if wanted else None
        state.tell(api.Hush(state.session_id, event.ref, event.end_sample, speculate))

    def _resumed(self, event: Resumed) -> None:
        assert self._open is not None
        self._open.hushed = None
        self._open.text_is_final = False
        self._state.turns.resume(event.ref)
        self._state.tell(api.Resume(self._state.session_id, event.ref))

    def _stopped(
        self, event: SpeechStopped, answers: Answering, now_ns: int, *, answer: bool
    ) -> None:
        self._state.turns.end(event.ref)
        spoken, self._open = self._open, None
        assert spoken is not None
        spoken.end_sample = event.end_sample
        over = _Over(spoken, event, now_ns, self._stamps(event, now_ns), answer)
        if spoken.is_held and event.cause is not StopCause.SILENCE:
            self._confirm(spoken, answers, now_ns)  # the client's wish, or far too much for a cough
        if not spoken.is_held:
            self._finish(over, answers)
            return
        self._undecided = over
        if spoken.text_is_final:
            self._decide(answers, now_ns)

    def _decide(self, answers: Answering, now_ns: int) -> None:
        """What a held utterance was that is over, with the words that there are."""
        over, self._undecided = self._undecided, None
        if over is None:
            return
        if over.spoken.is_held and self._barge_in.is_turn(over.spoken, answers, now_ns):
            self._confirm(over.spoken, answers, now_ns)
        if not over.spoken.is_held:
            self._finish(over, answers)
        else:
            self._barge_in.forget(over.spoken, answers, now_ns)
            self._state.tell(api.DropSpeech(self._state.session_id, over.event.ref))

    def _finish(self, over: _Over, answers: Answering) -> None:
        """The utterance becomes an item, and is answered if that is wanted."""
        state = self._state
        spoken, event = over.spoken, over.event
        if not spoken.by_hand:
            state.send(state.events.speech_stopped(spoken.item_id, event.audio_end_ms))
        self._transcripts.commit(spoken)
        state.tell(api.EndSpeech(state.session_id, event.ref, event.end_sample))
        if not over.wants_answer or not state.config.answers_speech:
            return
        if answers.active:
            self._waiting = over
        else:
            self._ask(over, answers)

    def _ask(self, over: _Over, answers: Answering) -> None:
        self._asked = over
        spoken = over.spoken
        answers.answer_speech(over.stamps, spoken.turn, spoken.item_id, said=bool(spoken.text))

    def _stamps(self, event: SpeechStopped, now_ns: int) -> TurnStamps:
        return TurnStamps(
            sent_ns=now_ns,  # replaced when it is known
            captured_ns=event.last_speech_captured_ns,
            by_track=self._buffer_ns is not None,
            last_speech_received_ns=event.last_speech_received_ns,
            buffer_ns=self._buffer_ns,
            resample_ns=self._feed_ns,
            endpoint_ns=now_ns,
            realtime=event.realtime,
        )

    def _dropped(self, event: Dropped, answers: Answering, now_ns: int) -> None:
        state = self._state
        state.turns.drop(event.ref)
        spoken, self._open = self._open, None
        assert spoken is not None
        state.tell(api.DropSpeech(state.session_id, event.ref))
        if spoken.is_held:
            self._barge_in.forget(spoken, answers, now_ns)
        elif not spoken.by_hand:
            # The client was told that somebody speaks; nothing will be committed.
            at_ms = hear_ms(event.at_sample)
            state.send(state.events.speech_stopped(spoken.item_id, at_ms))
        self._transcripts.dropped(spoken)
        self._waiting, self._resay = self._waiting or self._resay, None
        self.answer_ended(answers, now_ns)

    def answer_ended(self, answers: Answering, now_ns: int) -> None:
        """An answer, or what is heard of it, may be over: one that waits for that may begin."""
        for spoken in (self._open, self._undecided.spoken if self._undecided else None):
            self._barge_in.look_again(spoken, answers, now_ns)
        if self._waiting is not None and not answers.active:
            over, self._waiting = self._waiting, None
            self._ask(over, answers)

    # --- words -----------------------------------------------------------------------------------

    def words(self, event: api.Hearing, answers: Answering, now_ns: int) -> None:
        """The words so far."""
        spoken = self._spoken(event.ref.turn)
        if spoken is None:
            return
        spoken.take(event)
        if spoken.is_held:
            if self._barge_in.judge(spoken, answers, now_ns) is Meaning.INTERRUPTION:
                self._confirm(spoken, answers, now_ns)
        else:
            self._transcripts.show(spoken, event)
        over = self._undecided
        if over is not None and over.spoken is spoken and event.final:
            self._decide(answers, now_ns)

    def end_of_message(self, event: api.EndOfMessage) -> None:
        """At a short silence: how sure the model is that the person has finished."""
        self._listener.believe(event.ref, event.probability)
        spoken = self._spoken(event.ref.turn)
        if spoken is None:
            return
        state = self._state
        state.send_ours(
            "endpoint",
            state.events.end_of_message(
                turn=spoken.turn,
                item_id=spoken.item_id,
                probability=event.probability,
                audio_ms=hear_ms_exact(event.at_sample),
            ),
        )

    def heard(self, event: api.Heard, answers: Answering) -> None:
        """The final words."""
        self._transcripts.heard(event)
        if event.text:
            answers.said(event.ref.turn)

    def failed(self, event: api.Failed) -> bool:
        """Whether a failed command was about speech; then the client is told here."""
        return self._transcripts.failed(event)

    def engine_lost(self, answers: Answering, now_ns: int) -> None:
        """Whatever was being heard is gone; the person has to say it again."""
        self._transcripts.engine_lost()
        self._waiting = None
        self._decide(answers, now_ns)
        spoken = self._open
        if spoken is None:
            return
        if not spoken.is_held:
            lost = "The engine was not there to hear all of it; say it again."
            self._transcripts.tell_failed(spoken, "engine_lost", lost)
        for event in self._listener.clear():
            if isinstance(event, Dropped):
                self._dropped(event, answers, now_ns)

    def _spoken(self, turn: int) -> Spoken | None:
        over = self._undecided
        for spoken in (self._open, over.spoken if over is not None else None):
            if spoken is not None and spoken.turn == turn:
                return spoken
        return self._transcripts.find(turn)

    def _detection(self) -> Detection | None:
        """The settings in force, as the listener takes them."""
        state = self._state
        self._detecting = (state.config.turn_detection, state.endpointing)
        turns, endpointing = self._detecting
        return detection_of(turns, state.settings.hush_ms, self._pace, endpointing)
