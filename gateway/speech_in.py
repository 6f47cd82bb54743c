"""A session's speech: what the listener notices becomes protocol events and engine commands.

One `Spoken` per utterance lives from its beginning until its words are final (`api.Heard`), which
may be after the next one has begun.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, assert_never

from engine import api
from gateway.budget import TurnStamps
from gateway.conversation import NO_TRANSCRIBER, Kept
from gateway.endpoint import FixedSilence, semantic
from gateway.listening import (
    Detection,
    Dropped,
    DropReason,
    Hushed,
    Listener,
    ListenEvent,
    ListeningSettings,
    Resumed,
    SpeechChunk,
    SpeechStarted,
    SpeechStopped,
    UtteranceTooLongError,
)
from gateway.media.timebase import hear_ms, hear_ms_exact
from gateway.protocol import items
from gateway.protocol.session_config import (
    SemanticVadConfig,
    ServerVadConfig,
    SessionConfig,
    TurnDetection,
)
from gateway.state import SessionState

# Utterances whose words are not final yet. The engine hears them in order, so more than a few mean
# that it is far behind; the oldest is then told as a failed transcription.
MAX_UNHEARD = 16
NS_PER_MS = 1_000_000


class Answering(Protocol):
    """What speech asks of the session's answers (`gateway.answers.Answers`)."""

    @property
    def active(self) -> bool: ...
    def interrupt(self) -> None: ...
    def answer_speech(self, stamps: TurnStamps, turn: int, item_id: str) -> None: ...


@dataclass(slots=True)
class Spoken:
    """One utterance; `shown_chars`: of its committed words, sent as transcription deltas."""

    turn: int
    item_id: str
    start_sample: int
    end_sample: int = 0
    by_hand: bool = False
    shown_chars: int = 0


@dataclass(frozen=True, slots=True)
class _Question:
    """A turn that is over and waits for its answer."""

    spoken: Spoken
    stamps: TurnStamps


class SpeechIn:
    """Owns the listener. `stopwatch` measures what receiving costs."""

    def __init__(self, state: SessionState, stopwatch: Callable[[], int]) -> None:
        self._state = state
        self._stopwatch = stopwatch
        self._listener = Listener(
            detection_of(state.config.turn_detection, state.settings.hush_ms),
            ListeningSettings(chunk_ms=state.settings.chunk_ms),
        )
        self._open: Spoken | None = None
        self._unheard: dict[int, Spoken] = {}  # by turn, in order
        self._waiting: _Question | None = None
        self._feed_ns = 0  # the last packet's time in the listener
        self._buffer_ns: int | None = None  # and in a track's receive buffer
        # The client's clock against ours: the smallest offset seen is the least delayed packet.
        self._clock_offset_ns: int | None = None

    @property
    def clock_samples(self) -> int:
        return self._listener.clock_samples

    def item_id_of(self, turn: int) -> str | None:
        if self._open is not None and self._open.turn == turn:
            return self._open.item_id
        spoken = self._unheard.get(turn)
        return spoken.item_id if spoken is not None else None

    # --- audio and requests from the client ------------------------------------------------------

    def feed(self, pcm: bytes, captured_ms: float | None, answers: Answering, now_ns: int) -> None:
        """One packet. Raises the listener's errors."""
        captured_ns = None if captured_ms is None else self._on_our_clock(captured_ms, now_ns)
        began_ns = self._stopwatch()
        events = self._listener.feed(pcm, now_ns, captured_ns)
        self._feed_ns = self._stopwatch() - began_ns
        self._state.metrics.audio("received", len(pcm) / 48)  # bytes in a ms of s16 at 24 kHz
        self._handle(events, answers, now_ns)

    def hear(self, pcm: bytes, received_ns: int | None, answers: Answering, now_ns: int) -> None:
        """Sound out of a track's receive buffer; what no packet brought has no `received_ns`."""
        arrived_ns = now_ns if received_ns is None else received_ns
        began_ns = self._stopwatch()
        try:
            events = self._listener.feed(pcm, arrived_ns)
        except UtteranceTooLongError:  # push-to-talk: a track goes on, whoever forgot it
            self._state.metrics.audio("dropped", len(pcm) / 48)
            return
        self._feed_ns = self._stopwatch() - began_ns
        self._buffer_ns = now_ns - arrived_ns
        fate = "inserted" if received_ns is None else "received"
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
        self._handle(self._listener.tick(now_ns), answers, now_ns)

    def configure(self, before: SessionConfig, answers: Answering, now_ns: int) -> None:
        """Follow a change of the session's settings."""
        config = self._state.config
        chunk_ms = config.gateway.chunk_ms if config.gateway is not None else None
        if chunk_ms is not None:
            self._listener.settings = dataclasses.replace(
                self._listener.settings, chunk_ms=chunk_ms
            )
        if config.turn_detection != before.turn_detection:
            detection = detection_of(config.turn_detection, self._state.settings.hush_ms)
            self._handle(self._listener.set_detection(detection), answers, now_ns)

    def _on_our_clock(self, captured_ms: float, now_ns: int) -> int:
        """A client's stamp as an instant of ours. The two clocks have no common zero, so what can
        be known is delay beyond that of the quickest packet so far."""
        offset_ns = now_ns - round(captured_ms * NS_PER_MS)
        if self._clock_offset_ns is None or offset_ns < self._clock_offset_ns:
            self._clock_offset_ns = offset_ns
        return round(captured_ms * NS_PER_MS) + self._clock_offset_ns

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
                    self._started(event, answers)
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
                    state.turns.resume(event.ref)
                    state.tell(api.Resume(state.session_id, event.ref))
                case SpeechStopped():
                    self._stopped(event, answers, now_ns, answer=answer)
                case Dropped():
                    self._dropped(event)
                case _:
                    assert_never(event)

    def _started(self, event: SpeechStarted, answers: Answering) -> None:
        state = self._state
        state.turns.begin(event.ref)
        self._open = Spoken(
            event.ref.turn, state.ids.item(), event.start_sample, by_hand=event.push_to_talk
        )
        self._waiting = None  # it goes on talking: the question was not over
        if not event.push_to_talk:
            state.send(state.events.speech_started(self._open.item_id, event.audio_start_ms))
            detection = state.config.turn_detection
            if detection is not None and detection.interrupt_response:
                answers.interrupt()
        state.tell(
            api.BeginSpeech(state.session_id, event.ref, self._open.item_id, event.start_sample)
        )

    def _hushed(self, event: Hushed, answers: Answering) -> None:
        state = self._state
        state.turns.hush(event.ref)
        detection = state.config.turn_detection
        wanted = detection is not None and detection.create_response and not answers.active
        speculate = state.sampling() if wanted else None
        state.tell(api.Hush(state.session_id, event.ref, event.end_sample, speculate))

    def _stopped(
        self, event: SpeechStopped, answers: Answering, now_ns: int, *, answer: bool
    ) -> None:
        state = self._state
        state.turns.end(event.ref)
        spoken, self._open = self._open, None
        assert spoken is not None
        spoken.end_sample = event.end_sample
        if not spoken.by_hand:
            state.send(state.events.speech_stopped(spoken.item_id, event.audio_end_ms))
        self._commit_item(spoken)
        state.tell(api.EndSpeech(state.session_id, event.ref, event.end_sample))
        detection = state.config.turn_detection
        if not answer or detection is None or not detection.create_response:
            return
        stamps = TurnStamps(
            sent_ns=now_ns,  # replaced when it is known
            captured_ns=event.last_speech_captured_ns,
            last_speech_received_ns=event.last_speech_received_ns,
            buffer_ns=self._buffer_ns,
            resample_ns=self._feed_ns,
            endpoint_ns=now_ns,
            realtime=event.realtime,
        )
        if answers.active:
            self._waiting = _Question(spoken, stamps)
        else:
            answers.answer_speech(stamps, spoken.turn, spoken.item_id)

    def _commit_item(self, spoken: Spoken) -> None:
        """The utterance is an item from now on; its words follow when they are final."""
        state = self._state
        previous = state.talk.tail_id
        wire = items.message(spoken.item_id, "user", [items.input_audio(None)])
        state.talk.insert(Kept(wire, None), previous)
        state.send(state.events.committed(spoken.item_id, previous))
        state.send(state.events.item_added(wire, previous))
        state.send(state.events.item_done(wire, previous))
        self._unheard[spoken.turn] = spoken
        if not state.engine_up:
            self._give_up(spoken, "engine_unavailable", "The engine is not available.")
        elif len(self._unheard) > MAX_UNHEARD:
            oldest = next(iter(self._unheard.values()))
            self._give_up(oldest, "engine_behind", "The engine is too far behind.")

    def _dropped(self, event: Dropped) -> None:
        state = self._state
        state.turns.drop(event.ref)
        spoken, self._open = self._open, None
        assert spoken is not None
        state.tell(api.DropSpeech(state.session_id, event.ref))
        if event.reason is DropReason.TOO_SHORT:
            # The client was told that somebody speaks; nothing will be committed.
            at_ms = hear_ms(event.at_sample)
            state.send(state.events.speech_stopped(spoken.item_id, at_ms))

    def answer_ended(self, answers: Answering, now_ns: int) -> None:
        """An answer is over: one that waits for it may begin."""
        if self._waiting is not None and not answers.active:
            question, self._waiting = self._waiting, None
            answers.answer_speech(question.stamps, question.spoken.turn, question.spoken.item_id)

    # --- words -----------------------------------------------------------------------------------

    def words(self, event: api.Hearing) -> None:
        """The words so far. Stale ones (of a revision that is over) may differ; committed ones
        never do."""
        spoken = self._spoken(event.ref.turn)
        if spoken is None:
            return
        self._show(spoken, event.committed)
        state = self._state
        state.send_ours(
            "hearing",
            state.events.hearing(
                turn=spoken.turn,
                item_id=spoken.item_id,
                committed=event.committed,
                tentative=event.tentative,
                audio_ms=hear_ms_exact(event.at_sample),
            ),
        )

    def end_of_message(self, event: api.EndOfMessage) -> None:
        """At a short silence: how sure the model is that the person has finished."""
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

    def heard(self, event: api.Heard) -> None:
        """The final words."""
        spoken = self._unheard.pop(event.ref.turn, None)
        if spoken is None:
            return
        state = self._state
        kept = state.talk.find(spoken.item_id)
        if kept is not None:
            kept.wire["content"][0]["transcript"] = event.text if event.transcribed else None
            words = (api.Text(event.text),) if event.text else ()
            kept.engine = api.Item(spoken.item_id, api.Role.USER, words)
        if not event.transcribed:
            self._transcription_failed(spoken, *NO_TRANSCRIBER)
        elif state.config.transcription is not None:
            self._show(spoken, event.text)
            audio_s = hear_ms_exact(spoken.end_sample - spoken.start_sample) / 1000
            state.send(state.events.transcription_completed(spoken.item_id, event.text, audio_s))

    def failed(self, event: api.Failed) -> bool:
        """Whether a failed command was about speech; then the client is told here."""
        if event.about not in ("begin_speech", "audio", "hush", "resume", "end_speech"):
            return event.about == "drop_speech"
        if event.about == "end_speech" and self._unheard:
            self._give_up(next(iter(self._unheard.values())), event.code, event.message)
        return True

    def engine_lost(self) -> None:
        """Whatever was being heard is gone; the person has to say it again."""
        for spoken in list(self._unheard.values()):
            self._give_up(spoken, "engine_lost", "The engine was lost while it listened.")
        self._waiting = None
        if self._open is not None:
            spoken = self._open
            for event in self._listener.clear():
                if isinstance(event, Dropped):
                    self._dropped(event)
            self._transcription_failed(spoken, "engine_lost", "The engine was lost; say it again.")

    def _spoken(self, turn: int) -> Spoken | None:
        if self._open is not None and self._open.turn == turn:
            return self._open
        return self._unheard.get(turn)

    def _show(self, spoken: Spoken, committed: str) -> None:
        """Send what is new of the committed words, if the session wants transcripts."""
        state = self._state
        new = committed[spoken.shown_chars :]
        if new and state.config.transcription is not None:
            spoken.shown_chars += len(new)
            state.send(state.events.transcription_delta(spoken.item_id, new))

    def _give_up(self, spoken: Spoken, code: str, message: str) -> None:
        self._unheard.pop(spoken.turn, None)
        self._transcription_failed(spoken, code, message)

    def _transcription_failed(self, spoken: Spoken, code: str, message: str) -> None:
        state = self._state
        state.metrics.error(code)
        if state.config.transcription is not None:
            state.send(state.events.transcription_failed(spoken.item_id, code, message))


def detection_of(turns: TurnDetection | None, hush_ms: int) -> Detection | None:
    """The protocol's turn detection as the listener knows it; None is push-to-talk."""
    match turns:
        case None:
            return None
        case ServerVadConfig():
            silence_ms = turns.silence_duration_ms
            return Detection(
                threshold=turns.threshold,
                prefix_padding_ms=turns.prefix_padding_ms,
                endpoint=FixedSilence(silence_ms, min(hush_ms, silence_ms)),
            )
        case SemanticVadConfig():
            return Detection(endpoint=semantic(turns.eagerness, hush_ms))
        case _:
            assert_never(turns)
