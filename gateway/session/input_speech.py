"""A session's input speech: the segmenter's events become protocol events and engine commands.

Speech over a response is not announced to the client until it is classified
(`gateway.interruption`): a cough or "mm-hm" sends no event, and the response continues.
`headstart.gateway.session.turn_taking` applies the effect of speech on responses.

"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import assert_never

from headstart.engine import api
from headstart.gateway.audio.client_clock import ClientClock
from headstart.gateway.audio.clock import (
    NS_PER_MS,
    engine_samples_to_exact_ms,
    engine_samples_to_ms,
)
from headstart.gateway.audio.endpointing import (
    EagerSilence,
    PauseStatistics,
    mean_probability,
)
from headstart.gateway.audio.open_utterance import Arrival
from headstart.gateway.audio.segmenter import (
    Detection,
    PauseDetected,
    SegmenterSettings,
    SpeechChunk,
    SpeechEvent,
    SpeechResumed,
    SpeechSegmenter,
    SpeechStarted,
    SpeechStopped,
    StopCause,
    UtteranceDropped,
    UtteranceTooLongError,
)
from headstart.gateway.audio.turn_detection import detection_of
from headstart.gateway.protocol.extensions import Endpointing
from headstart.gateway.protocol.session_config import TurnDetection
from headstart.gateway.session.barge_in import Meaning
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.transcription import Transcripts
from headstart.gateway.session.turn_taking import TurnTaking
from headstart.gateway.session.utterance import EndedUtterance, Utterance
from headstart.gateway.telemetry.latency import TurnStamps

HELD_CHUNK_MS = 200
FED_NS = 1_000 * NS_PER_MS


class InputSpeech:
    """Owns the segmenter. `stopwatch` returns ns and measures the time spent on receiving audio."""

    def __init__(
        self, context: SessionContext, turns: TurnTaking, stopwatch: Callable[[], int]
    ) -> None:
        self._context = context
        self._turns = turns
        self._stopwatch = stopwatch
        self._pace = PauseStatistics()
        self.ends_early = False
        """A turn may end before an answer's first clause is whole."""
        settings = SegmenterSettings(chunk_ms=context.settings.chunk_ms)
        self._segmenter = SpeechSegmenter(self._detection(), settings)
        self._open: Utterance | None = None
        self._undecided: EndedUtterance | None = None  # held, ended, no final words yet
        self._transcripts = Transcripts(context)
        self._feed_ns = 0  # time the last packet spent in the segmenter
        self._buffer_ns: int | None = None  # and in a receive buffer, if it came over a track
        self.client_clock = ClientClock()
        self._fed_ns: int | None = None  # when sound came last
        context.uses_ids(self._uses_id)

    def _uses_id(self, item_id: str) -> bool:
        """Whether speech that is open, undecided or not transcribed yet has that id."""
        over = self._undecided.utterance if self._undecided is not None else None
        speaking = any(u is not None and u.uses_id(item_id) for u in (self._open, over))
        return speaking or self._transcripts.uses_id(item_id)

    @property
    def clock_samples(self) -> int:
        return self._segmenter.clock_samples

    def is_fed(self, now_ns: int) -> bool:
        """Whether sound has come lately."""
        return self._fed_ns is not None and now_ns - self._fed_ns < FED_NS

    def item_id_of(self, turn: int) -> str | None:
        utterance = self._utterance(turn)
        return utterance.item_id if utterance is not None else None

    # --- audio and requests from the client ------------------------------------------------------

    def feed(self, pcm: bytes, captured_ms: float | None, now_ns: int) -> None:
        """Process one packet. Raises the segmenter's errors."""
        self._fed_ns = now_ns
        captured_ns = self.client_clock.to_ours(captured_ms, now_ns)
        began_ns = self._stopwatch()
        self._context.echo.heard(pcm, now_ns)
        events = self._segmenter.feed(pcm, now_ns, captured_ns)
        self._feed_ns, self._buffer_ns = self._stopwatch() - began_ns, None
        self._context.metrics.audio("received", len(pcm) / 48)  # bytes in a ms of s16 at 24 kHz
        if events:
            self._handle(events, now_ns)
        self._turns.advance(self._segmenter.clock_samples, now_ns)

    def hear(self, pcm: bytes, arrival: Arrival | None, now_ns: int) -> None:
        """Process audio from a track's receive buffer; concealed audio has no arrival."""
        self._fed_ns = now_ns
        came = arrival or Arrival(now_ns, None)
        began_ns = self._stopwatch()
        self._context.echo.heard(pcm, now_ns)
        try:
            events = self._segmenter.feed(pcm, came.received_ns, came.captured_ns)
        except UtteranceTooLongError:  # push-to-talk: a track keeps sending
            self._context.metrics.audio("dropped", len(pcm) / 48)
            return
        self._feed_ns = self._stopwatch() - began_ns
        self._buffer_ns = now_ns - came.received_ns
        fate = "inserted" if arrival is None else "received"
        self._context.metrics.audio(fate, len(pcm) / 48)
        if events:
            self._handle(events, now_ns)
        self._turns.advance(self._segmenter.clock_samples, now_ns)

    def commit(self, now_ns: int) -> None:
        """The client commits the utterance; this alone does not start a response."""
        events = self._segmenter.commit()
        self._handle(events, now_ns, answer=False)

    def clear(self, now_ns: int) -> None:
        """The client discards what is not committed, and with it speech that it was told nothing
        of: held, over, and waiting for its words."""
        if self._undecided is not None:
            over, self._undecided = self._undecided, None
            self._forget(over, now_ns)
        self._handle(self._segmenter.clear(), now_ns)
        self._context.send(self._context.events.cleared())

    def tick(self, now_ns: int) -> None:
        self._turns.look(now_ns)
        if self._open is None and self._undecided is None:
            return  # nobody is speaking
        self._handle(self._segmenter.tick(now_ns), now_ns)
        self._turns.tick(now_ns)
        over = self._undecided
        if over is not None and self._turns.has_waited(over, now_ns):
            self._decide(now_ns)

    def configure(self, now_ns: int) -> None:
        """Apply a change of the session's settings."""
        self._cut_chunks()
        if self._detecting != self._wanted():
            self._handle(self._segmenter.set_detection(self._detection()), now_ns)

    @property
    def chunk_ms(self) -> int:
        """How long the chunks are that the engine gets now."""
        return self._segmenter.settings.chunk_ms

    def _cut_chunks(self) -> None:
        """Set the chunk size: small chunks while a held utterance waits for its words."""
        options = self._context.config.gateway
        wanted_ms = options.chunk_ms if options is not None else None
        chunk_ms: int = wanted_ms or self._context.settings.chunk_ms
        if self._open is not None and self._open.is_held:
            chunk_ms = min(chunk_ms, HELD_CHUNK_MS)
        self._segmenter.settings = dataclasses.replace(self._segmenter.settings, chunk_ms=chunk_ms)

    # --- what the segmenter noticed ---------------------------------------------------------------

    def _handle(
        self,
        events: Sequence[SpeechEvent],
        now_ns: int,
        *,
        answer: bool = True,
    ) -> None:
        context = self._context
        for event in events:
            match event:
                case SpeechStarted():
                    self._started(event, now_ns)
                case SpeechChunk():
                    if self._open is not None and self._open.is_held:
                        self._open.timbre.feed(event.pcm)
                    context.send_to_engine(
                        api.Audio(
                            context.session_id,
                            event.ref,
                            event.start_sample,
                            event.pcm,
                            event.received_ns,
                        )
                    )
                case PauseDetected():
                    self._hushed(event)
                case SpeechResumed():
                    self._resumed(event)
                case SpeechStopped():
                    self._stopped(event, now_ns, answer=answer)
                case UtteranceDropped():
                    self._dropped(event, now_ns)
                case _:
                    assert_never(event)

    def _started(self, event: SpeechStarted, now_ns: int) -> None:
        context = self._context
        self._decide(now_ns, must_end=True)  # the engine hears one utterance at a time
        self._segmenter.answered(context.conversation.newest_answer())
        context.turns.begin(event.ref)
        utterance = self._open = Utterance(
            turn=event.ref.turn,
            item_id=context.ids.item(),
            start_sample=event.start_sample,
            speech_sample=event.speech_sample,
            began_ns=now_ns,
            by_hand=event.push_to_talk,
        )
        self._turns.begin(utterance, now_ns, continues=event.continues)
        self._cut_chunks()
        context.send_to_engine(
            api.BeginSpeech(
                context.session_id,
                event.ref,
                utterance.item_id,
                event.start_sample,
                may_continue=utterance.before is not None,
            )
        )
        if utterance.before is not None and not utterance.is_held:
            self._join(utterance)

    def _confirm(self, utterance: Utterance, now_ns: int) -> None:
        """Held speech turned out to be an interruption, or a turn."""
        joins = self._turns.confirm(utterance, now_ns)
        self._cut_chunks()
        if joins:
            self._join(utterance)
        elif utterance.hearing is not None:
            self._transcripts.show(utterance, utterance.hearing)
        if utterance is self._open and utterance.hushed is not None:
            self._send_pause(utterance.hushed)  # from here on there is something to speculate on

    def _join(self, utterance: Utterance) -> None:
        """The utterance continues the message before it, whose end is taken back."""
        before = self._turns.join(utterance)
        silence = utterance.speech_sample - before.event.last_speech_sample
        self._segmenter.revoked(max(0, silence))
        self._segmenter.answered(self._context.conversation.newest_answer())

    def _hushed(self, event: PauseDetected) -> None:
        assert self._open is not None
        if self._open.hushed is None:
            self._context.turns.hush(event.ref)
        self._open.hushed = event
        self._send_pause(event)

    def _send_pause(self, event: PauseDetected) -> None:
        context = self._context
        is_whole = self._open is None or self._open.before is None or not self._open.is_held
        speculate = context.sampling() if is_whole and self._turns.may_speculate else None
        context.send_to_engine(
            api.Hush(
                context.session_id,
                event.ref,
                event.end_sample,
                speculate,
                tell_text=context.config.output_modality == "audio",
            )
        )

    def _resumed(self, event: SpeechResumed) -> None:
        assert self._open is not None
        self._open.hushed = None
        self._open.text_is_final = False
        self._context.turns.resume(event.ref)
        self._context.send_to_engine(api.Resume(self._context.session_id, event.ref))

    def _stopped(self, event: SpeechStopped, now_ns: int, *, answer: bool) -> None:
        self._context.turns.end(event.ref)
        utterance, self._open = self._open, None
        assert utterance is not None
        utterance.end_sample = event.end_sample
        over = EndedUtterance(utterance, event, now_ns, self._stamps(event, now_ns), answer)
        if utterance.is_held and event.cause is not StopCause.SILENCE:
            # The client committed it, or it is far too long for a cough.
            self._confirm(utterance, now_ns)
        if not utterance.is_held:
            self._finish(over)
            return
        self._undecided = over
        if utterance.text_is_final:
            self._decide(now_ns)

    def _decide(self, now_ns: int, *, must_end: bool = False) -> None:
        """Classify a held utterance that has ended, by the words recognised so far. `must_end`: the
        next one begins."""
        over, self._undecided = self._undecided, None
        if over is None:
            return
        if over.utterance.is_held and self._turns.is_turn(over, now_ns, must_end=must_end):
            self._confirm(over.utterance, now_ns)
        if not over.utterance.is_held:
            self._finish(over)
        else:
            self._forget(over, now_ns)

    def _forget(self, over: EndedUtterance, now_ns: int) -> None:
        """Held speech that has ended was nothing."""
        self._turns.forget(over.utterance, now_ns)
        self._turns.dropped(over.utterance)
        self._context.send_to_engine(api.DropSpeech(self._context.session_id, over.event.ref))

    def _finish(self, over: EndedUtterance) -> None:
        """Turn the utterance into an item, and answer it if wanted."""
        context = self._context
        utterance, event = over.utterance, over.event
        if not utterance.by_hand:
            context.send(context.events.speech_stopped(utterance.item_id, event.audio_end_ms))
        self._transcripts.commit(utterance)
        may_continue = self._turns.ended(over)
        context.send_to_engine(
            api.EndSpeech(context.session_id, event.ref, event.end_sample, may_continue)
        )
        self._turns.end(over)

    def _stamps(self, event: SpeechStopped, now_ns: int) -> TurnStamps:
        return TurnStamps(
            sent_ns=now_ns,  # replaced once it is known
            captured_ns=event.last_speech_captured_ns,
            by_track=self._buffer_ns is not None,
            last_speech_received_ns=event.last_speech_received_ns,
            buffer_ns=self._buffer_ns,
            resample_ns=self._feed_ns,
            endpoint_ns=now_ns,
            realtime=event.realtime,
        )

    def _dropped(self, event: UtteranceDropped, now_ns: int) -> None:
        context = self._context
        context.turns.drop(event.ref)
        utterance, self._open = self._open, None
        assert utterance is not None
        context.send_to_engine(api.DropSpeech(context.session_id, event.ref))
        if utterance.is_held:
            self._turns.forget(utterance, now_ns)
        elif not utterance.by_hand:
            # The client was told that speech started, and nothing will be committed.
            at_ms = engine_samples_to_ms(event.at_sample)
            context.send(context.events.speech_stopped(utterance.item_id, at_ms))
        self._turns.dropped(utterance)
        self._transcripts.dropped(utterance)
        self._turns.withdraw(now_ns)

    # --- words -----------------------------------------------------------------------------------

    def words(self, event: api.Hearing, now_ns: int) -> None:
        """The words recognised so far."""
        utterance = self._utterance(event.ref.turn)
        if utterance is None:
            return
        if not utterance.take(event):
            return
        if utterance.is_held:
            if self._turns.judge(utterance, now_ns) is Meaning.INTERRUPTION:
                self._confirm(utterance, now_ns)
        else:
            self._transcripts.show(utterance, event)
        over = self._undecided
        is_decided = event.final or not utterance.is_held
        if over is not None and over.utterance is utterance and is_decided:
            self._decide(now_ns)

    def end_of_message(self, event: api.EndOfMessage) -> None:
        """At a short pause: the model's probability that the user has finished."""
        utterance = self._utterance(event.ref.turn)
        words = "" if utterance is None else utterance.text
        hearing = None if utterance is None else utterance.hearing
        mark = event.mark_probability
        word_probability = None if hearing is None else mean_probability(hearing.likely)
        self._segmenter.set_end_probability(
            event.ref, event.probability, words, word_probability, mark
        )
        if utterance is None:
            return
        context = self._context
        context.send_ours(
            "endpoint",
            context.events.end_of_message(
                turn=utterance.turn,
                item_id=utterance.item_id,
                probability=event.probability,
                mark_probability=mark,
                audio_ms=engine_samples_to_exact_ms(event.at_sample),
            ),
        )

    def final_words(self, event: api.Heard) -> None:
        """The final words of an utterance."""
        self._transcripts.final_words(event)
        if event.text:
            self._turns.words(event.ref.turn)

    def failed(self, event: api.Failed) -> bool:
        """Handle a failed command if it was about speech, and tell the client. Returns whether it
        was."""
        return self._transcripts.failed(event)

    def engine_lost(self, now_ns: int) -> None:
        """Speech that was being recognised is lost; the user has to repeat it."""
        self._transcripts.engine_lost()
        self._turns.engine_lost()
        self._decide(now_ns)
        utterance = self._open
        if utterance is None:
            return
        if not utterance.is_held:
            lost = "The engine was not available for all of the speech; say it again."
            self._transcripts.send_failed(utterance, "engine_lost", lost)
        for event in self._segmenter.clear():
            if isinstance(event, UtteranceDropped):
                self._dropped(event, now_ns)

    def _utterance(self, turn: int) -> Utterance | None:
        over = self._undecided
        for utterance in (self._open, over.utterance if over is not None else None):
            if utterance is not None and utterance.turn == turn:
                return utterance
        return self._transcripts.find(turn)

    def _detection(self) -> Detection | None:
        """The turn detection settings in force, for the segmenter."""
        context = self._context
        self._detecting = self._wanted()
        turns, endpointing, audible = self._detecting
        hush_ms, ours = context.settings.hush_ms, context.config.server_vad
        interrupts = turns is not None and turns.interrupt_response
        takes_back = interrupts and context.config.answers_speech
        revocable_ms = context.settings.revocable_ms if takes_back else 0
        detection = detection_of(
            *(turns, hush_ms, self._pace, endpointing),
            ours=ours,
            revocable_ms=revocable_ms,
            audible=audible,
        )
        self.ends_early = detection is not None and isinstance(detection.endpoint, EagerSilence)
        return detection

    def _wanted(self) -> tuple[TurnDetection | None, Endpointing, bool]:
        """What the detection follows from: two settings, and whether answers are spoken."""
        config = self._context.config
        return config.turn_detection, self._context.endpointing, config.output_modality == "audio"
