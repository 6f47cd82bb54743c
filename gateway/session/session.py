"""One client's session: protocol events and audio in, protocol events and engine commands out.

    client event ─┐                             ┌─▶ Send   (to the client, in order)
    engine event ─┼─▶ Session, no I/O, no clock ┼─▶ SendToEngine (in order)
    tick, stamps ─┘                             └─▶ Hangup

An invalid client event gets one `error` event and changes nothing else. This module dispatches
events; each call ends in `_done`, which applies the consequences for the turn.

"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable
from typing import assert_never

from openai.types.realtime import (
    ConversationItemCreateEvent,
    ConversationItemDeleteEvent,
    ConversationItemRetrieveEvent,
    ConversationItemTruncateEvent,
    InputAudioBufferAppendEvent,
    InputAudioBufferClearEvent,
    InputAudioBufferCommitEvent,
    OutputAudioBufferClearEvent,
    ResponseCancelEvent,
    ResponseCreateEvent,
    SessionUpdateEvent,
)

from headstart.engine import api
from headstart.gateway.audio.open_utterance import Arrival
from headstart.gateway.audio.segmenter import CommitTooShortError
from headstart.gateway.protocol import errors, items
from headstart.gateway.protocol.errors import FatalProtocolError, ProtocolError
from headstart.gateway.protocol.extensions import InputImageBufferAppend, PlayoutStarted
from headstart.gateway.protocol.fast_append import FastAppend
from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.protocol.parse import ClientEvent, parse_client_event
from headstart.gateway.protocol.session_config import ServerVadConfig, SessionConfig, SessionUpdate
from headstart.gateway.session.actions import Action, Hangup, Send
from headstart.gateway.session.audio_appends import AudioAppender
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.early_voice import EarlyVoice
from headstart.gateway.session.input_speech import InputSpeech
from headstart.gateway.session.items import ClientItems
from headstart.gateway.session.responses import ResponseManager
from headstart.gateway.session.resume_offer import ResumeOffer
from headstart.gateway.session.speech_output import SpeechOutput
from headstart.gateway.session.turn_reports import TurnReports
from headstart.gateway.session.turn_taking import TurnTaking
from headstart.gateway.session.turns import TurnState
from headstart.gateway.session.updates import SessionUpdates, open_command
from headstart.gateway.session.video_input import VideoInput
from headstart.gateway.settings import Settings
from headstart.gateway.telemetry.metrics import Metrics
from headstart.gateway.telemetry.observer import Observer
from headstart.gateway.tts.messages import ClauseDone, Stop, SynthesisedAudio
from headstart.gateway.tts.status import VoiceStatus
from headstart.gateway.video.decode import DecodedImage, Outcome

log = logging.getLogger("headstart.session")

NS_PER_MINUTE = 60 * 10**9


class Session:
    """See the module's docstring. `stopwatch` returns ns and only measures work; decisions use
    `now_ns`. `model`: what the engine reported when it became ready, if it has."""

    def __init__(
        self,
        session_id: str,
        settings: Settings,
        ids: IdMaker,
        metrics: Metrics,
        *,
        engine_ready: bool,
        model_name: str,
        now_ns: int,
        wall_s: float,
        stopwatch: Callable[[], int],
        speaks: bool = False,
        model: api.ModelInfo | None = None,
        observer: Observer | None = None,
        batch: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`batch`: how many sessions a step of its engine works for."""
        vad = ServerVadConfig(
            threshold=settings.vad_threshold,
            prefix_padding_ms=settings.pre_roll_ms,
            silence_duration_ms=settings.silence_ms,
        )
        config = SessionConfig(
            session_id=session_id,
            model=model_name,
            expires_at=int(wall_s) + settings.max_session_minutes * 60,
            speaks=speaks,
            instructions=settings.instructions,
            server_vad=vad,
            turn_detection=vad,
        )
        self._context = SessionContext(
            session_id, settings, config, ids, metrics, engine_ready, observer
        )
        if model is not None:
            self._context.set_image_sizes(model.still, model.frame)
        self._metrics = metrics
        self._out = SpeechOutput(self._context)
        self._reports = TurnReports(self._context)
        self._early_voice = EarlyVoice(self._context)
        self._responses = ResponseManager(
            self._context, self._out, self._reports, self._early_voice
        )
        self._turns = TurnTaking(self._context, self._responses)
        self._speech = InputSpeech(self._context, self._turns, stopwatch)
        self._appends = AudioAppender(self._context, self._speech)
        self._pictures = VideoInput(self._context, lambda: self._speech.clock_samples, batch)
        if model is not None:
            self._pictures.engine_ready(model)
        self._items = ClientItems(self._context, self._pictures, self._responses)
        self._offer = ResumeOffer(self._context)
        self._updates = SessionUpdates(
            self._context, self._speech, self._out, self._pictures, self._offer
        )
        self._expires_ns = now_ns + settings.max_session_minutes * NS_PER_MINUTE

    # --- the shell's calls -----------------------------------------------------------------------

    def preset(self, update: SessionUpdate, now_ns: int) -> None:
        """Apply settings that came with the connection; before `start`. Raises `ProtocolError`."""
        self._updates.preset(update, now_ns)

    def set_server_plays(self, server_plays: bool) -> None:
        """Whether the transport has a playout of its own; at first, it has none."""
        self._context.server_plays = server_plays

    def state(self, now_ns: int) -> str:
        """What it is at, for who watches: answering, speaking, pause, listening or idle."""
        turn = self._context.turns.state
        if turn is TurnState.ANSWERING:
            return "answering"
        if turn is not TurnState.QUIET:
            hushed = turn in (TurnState.HUSHED, TurnState.HUSHED_OVER_ANSWER)
            return "pause" if hushed else "speaking"
        return "listening" if self._speech.is_fed(now_ns) else "idle"

    def describe(self) -> items.Json:
        """The session object in force."""
        return self._context.config.to_wire()

    def offer_resume(self, token: str, keep_ms: int) -> None:
        """With this token the client may resume within `keep_ms`, if it asks for it. Before
        `start`."""
        self._offer.make(token, keep_ms)

    @property
    def resumable(self) -> bool:
        """Whether to keep the session when its connection breaks."""
        return self._offer.taken

    def resumed(self, replayed: int | None, now_ns: int) -> list[Action]:
        """The client has resumed, and `replayed` events were sent again; None: it missed more than
        was buffered."""
        self._offer.resumed(replayed, self._responses.active_item())
        return self._context.take()

    def start(self, now_ns: int) -> list[Action]:
        """Called first, after the handshake."""
        self._metrics.session_opened()
        context = self._context
        context.send(context.events.session_created(context.config.to_wire()))
        self._offer.announce(None)
        if context.engine_up:
            context.send_to_engine(open_command(context))
        return context.take()

    def receive_text(self, text: str, now_ns: int) -> list[Action]:
        """Process one text frame from the client."""
        return self.prepare(text)(now_ns)

    def receive_sound(self, text: str, now_ns: int) -> list[Action] | None:
        """As `receive_text`, for an audio append of one piece. None if `text` is not one; nothing
        was done then."""
        if (packet := self._appends.packet(text)) is None:
            return None
        try:
            self._appends.take_packet(packet, now_ns)
        except ProtocolError as error:
            return self._refuse(error.about(packet.event_id), now_ns)
        return self._done(now_ns)

    def prepare(self, text: str) -> Callable[[int], list[Action]]:
        """The part of `receive_text` that may run on another thread, between two events of the
        client. Call the returned function with the time for the rest."""
        extensions = self._context.config.gateway is not None
        try:
            event = self._appends.quick(text) or parse_client_event(text, extensions=extensions)
        except ProtocolError as error:
            return functools.partial(self._refuse, error)
        return functools.partial(self._receive, event)

    def _receive(self, event: ClientEvent | FastAppend, now_ns: int) -> list[Action]:
        try:
            self._dispatch(event, now_ns)
        except ProtocolError as error:
            return self._refuse(error.about(event.event_id), now_ns)
        return self._done(now_ns)

    def more(self, now_ns: int) -> list[Action]:
        """Process the next piece of a long append or of item audio, as requested by
        `ContinueLater`."""
        try:
            if self._items.sounds.is_sending:
                self._items.sounds.more()
            else:
                self._appends.more(now_ns)
        except ProtocolError as error:
            return self._refuse(error, now_ns)
        return self._done(now_ns)

    def receive_binary(self, size: int, now_ns: int) -> list[Action]:
        """Reject a binary frame: the protocol has none."""
        return self._refuse(errors.binary_frame(), now_ns)

    def receive_audio(self, pcm24k: bytes, arrival: Arrival | None, now_ns: int) -> list[Action]:
        """Process audio from a track, s16 mono at 24 kHz; see `SessionRunner.hear`."""
        self._speech.hear(pcm24k, arrival, now_ns)
        return self._done(now_ns)

    @property
    def frame_size(self) -> api.PictureSize:
        """The largest useful size of a track's video frames."""
        return self._pictures.frame_size

    @property
    def camera_rung(self) -> str | None:
        """The rung of the load-shedding ladder; None: no frame has come."""
        rung = self._pictures.rung
        return None if rung is None else rung.label

    @property
    def frame_before(self) -> bytes | None:
        """What a track's next frame is scored against (`decode.Encoded`)."""
        return self._pictures.before

    def receive_image(self, decoded: DecodedImage, now_ns: int) -> list[Action]:
        """Process a video frame from a track."""
        self._pictures.track_frame(decoded, now_ns)
        return self._done(now_ns)

    def decoded(self, request_id: int, outcome: Outcome, now_ns: int) -> list[Action]:
        """The outcome of a `Decode` action."""
        try:
            self._pictures.decoded(request_id, outcome)
        except ProtocolError as error:
            return self._refuse(error, now_ns)
        return self._done(now_ns)

    def receive_engine(self, event: api.Event, now_ns: int) -> list[Action]:
        """Process one engine event of this session."""
        match event:
            case api.Hearing():
                self._speech.words(event, now_ns)
            case api.EndOfMessage():
                self._early_voice.end_of_message(event)
                self._speech.end_of_message(event)
            case api.Prepared():
                self._early_voice.prepared(event, hurry=self._speech.ends_early)
            case api.Heard():
                self._speech.final_words(event)
                self._pictures.end_turn()
            case api.ClipHeard():
                self._items.sounds.clip_words(event)
            case api.Chunk():
                self._chunk(event, now_ns)
            case api.Delta():
                self._responses.delta(event, now_ns)
            case api.Call():
                self._responses.called(event, now_ns)
            case api.Finished():
                self._responses.finished(event, now_ns)
            case api.Failed():
                if event.about == "open" and event.retry_after_s:
                    refusal = errors.no_room(event.message, event.retry_after_s, event.code)
                    return self._refuse(refusal, now_ns)
                self._failed(event)
            case api.Moved():
                self._moved(event.move)
            case api.Pressure():
                self._pictures.pressure(event.level)
            case api.ImagesConsumed():
                pass  # handled by the runner
            case api.Loading() | api.Ready() | api.Draining() | api.Stats():
                raise AssertionError(f"{type(event).__name__} belongs to no session")
            case _:
                assert_never(event)
        return self._done(now_ns)

    def engine_lost(self, now_ns: int) -> list[Action]:
        """The engine died or stopped responding. Report the lost speech and responses to the
        client."""
        context = self._context
        context.engine_lost()
        self._pictures.engine_lost()
        self._responses.engine_lost(now_ns)
        self._speech.engine_lost(now_ns)
        self._items.sounds.engine_lost()
        message = "The engine was lost and is being restarted; the conversation is kept."
        context.send_ours("engine", context.events.engine_status("restarting", message))
        return self._done(now_ns)

    def _moved(self, move: api.Move) -> None:
        message = (
            "Another LLM server answers from now on; it reads the conversation again, which may "
            "delay the next answer."
        )
        detail = {"why": move.why, "tokens": move.tokens}
        status = self._context.events.engine_status("moved", message, **detail)
        self._context.send_ours("engine", status)

    def engine_ready(self, ready: api.Ready, now_ns: int) -> list[Action]:
        """An engine is available (again): send it the conversation."""
        context = self._context
        context.engine_up = True
        context.set_image_sizes(ready.model.still, ready.model.frame)
        self._pictures.engine_ready(ready.model)
        # An utterance cannot be recognised without its beginning.
        self._speech.engine_lost(now_ns)
        context.send_to_engine(open_command(context))
        status = context.events.engine_status(
            "ready", "The engine is ready.", model=ready.model.name
        )
        context.send_ours("engine", status)
        return self._done(now_ns)

    # --- the voice -------------------------------------------------------------------------------

    def receive_voice(self, event: SynthesisedAudio | ClauseDone, now_ns: int) -> list[Action]:
        """Audio of a response in this session, or the end of one of its clauses."""
        self._responses.voice(event, now_ns)
        return self._done(now_ns)

    def voice_changed(self, status: VoiceStatus, now_ns: int) -> list[Action]:
        """A TTS voice became available or unavailable; takes effect with the next response."""
        context = self._context
        context.config = dataclasses.replace(context.config, speaks=status.speaks)
        if not status.speaks:
            self._responses.voice_lost(status.reason)
        self._speech.configure(now_ns)
        event = context.events.voice_status(status.state, status.voice, status.reason)
        context.send_ours("voice", event)
        return self._done(now_ns)

    def playing(self, what: str, position_sample: int, now_ns: int) -> list[Action]:
        """The transport's playout has "started" or "stopped" at this sample of all audio it was
        given."""
        response_id = self._out.playing(what, position_sample)
        if what == "started":
            self._reports.heard_on_track(response_id, now_ns)
        return self._done(now_ns)

    def cleared(self, dropped_samples: int, now_ns: int) -> list[Action]:
        """The transport's playout dropped this much queued audio."""
        self._responses.cleared(dropped_samples)
        self._reports.looked_for_cuts()
        return self._done(now_ns)

    def tick(self, now_ns: int) -> list[Action]:
        """Called about ten times a second."""
        if now_ns >= self._expires_ns:
            return self._refuse(
                errors.session_expired(self._context.settings.max_session_minutes), now_ns
            )
        self._speech.tick(now_ns)
        return self._done(now_ns)

    def sent(self, action: Send, now_ns: int) -> list[Action]:
        """An event with `wants_sent_stamp` was written to the socket."""
        if action.event["type"] == "response.output_audio.delta":
            self._responses.sound_sent(action.event["response_id"], now_ns)
        else:
            self._responses.sent(now_ns)
        return self._done(now_ns)

    def close(self, now_ns: int) -> list[Action]:
        """The connection is closed."""
        self._metrics.session_closed()
        self._context.send_to_engine(api.Close(self._context.session_id))
        self._context.send_to_tts(Stop(self._context.session_id))
        self._responses.close()
        self._reports.close(now_ns)
        self._context.conversation.clear()
        return self._context.take()

    # --- client events ---------------------------------------------------------------------------

    def _dispatch(self, event: ClientEvent | FastAppend, now_ns: int) -> None:
        match event:
            case FastAppend() | InputAudioBufferAppendEvent():
                self._appends.take(event, now_ns)
            case InputAudioBufferCommitEvent():
                self._commit(now_ns)
            case InputAudioBufferClearEvent():
                self._speech.clear(now_ns)
            case OutputAudioBufferClearEvent():
                self._out.drop()
            case SessionUpdateEvent():
                self._updates.update(event, now_ns)
            case ConversationItemCreateEvent():
                self._items.create(event)
            case ConversationItemRetrieveEvent():
                self._items.retrieve(event.item_id)
            case ConversationItemTruncateEvent():
                self._responses.truncate(event)
                self._reports.looked_for_cuts()
            case ConversationItemDeleteEvent():
                self._items.delete(event.item_id)
            case ResponseCreateEvent() if self._context.config.only_transcribes:
                raise errors.no_responses()
            case ResponseCreateEvent():
                self._items.create_response(event, now_ns)
            case ResponseCancelEvent():
                self._responses.cancel(event.response_id)
            case InputImageBufferAppend():
                self._pictures.frame(event, now_ns)
            case PlayoutStarted():
                self._reports.heard(event, self._speech.client_clock, now_ns)
            case _:
                assert_never(event)

    def _commit(self, now_ns: int) -> None:
        try:
            self._speech.commit(now_ns)
        except CommitTooShortError as error:
            raise errors.commit_too_small(error.actual_ms, error.minimum_ms) from error

    # --- engine events ---------------------------------------------------------------------------

    def _chunk(self, chunk: api.Chunk, now_ns: int) -> None:
        if (budget := self._context.chunk_budget(chunk, self._speech.chunk_ms)) is not None:
            self._reports.chunk(chunk, budget, now_ns)
            self._pictures.chunk(budget, now_ns)
            self._context.report_chunk(chunk, budget, self._speech.item_id_of(chunk.ref.turn))

    def _failed(self, event: api.Failed) -> None:
        """A command failed in the engine. Failed speech is reported as a failed transcription,
        because some clients treat every `error` event as fatal."""
        log.warning("engine: %s failed: %s (%s)", event.about, event.message, event.code)
        self._context.error(event.code, event.message)
        if not (self._speech.failed(event) or self._items.failed(event)):
            is_item = event.about == "add_item" and event.ref_id
            what = f"The item {event.ref_id!r} was not added: " if is_item else ""
            error = errors.server_error(event.code, what + event.message)
            self._context.send(self._context.events.error(error))

    # --- the way out -----------------------------------------------------------------------------

    def _done(self, now_ns: int) -> list[Action]:
        """Ends each call: any event may have ended a response, or begun a turn."""
        self._turns.settle(now_ns)
        self._reports.settle(now_ns)
        self._pictures.settle()
        return self._context.take()

    def _refuse(self, error: ProtocolError, now_ns: int) -> list[Action]:
        context = self._context
        context.refused(error)
        context.send(context.events.error(error))
        actions = self._done(now_ns)
        if isinstance(error, FatalProtocolError):
            actions.append(Hangup(error.close_code, error.close_reason))
        return actions
