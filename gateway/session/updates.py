"""Session updates: applies a change of settings to each part of a session."""

from __future__ import annotations

from openai.types.realtime import SessionUpdateEvent

from headstart.engine import api
from headstart.gateway.default_prompts import blind_note
from headstart.gateway.protocol.extensions import VideoOptions
from headstart.gateway.protocol.session_config import SessionConfig, SessionUpdate
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.input_speech import InputSpeech
from headstart.gateway.session.resume_offer import ResumeOffer
from headstart.gateway.session.retention import remember, window_of
from headstart.gateway.session.speech_output import SpeechOutput
from headstart.gateway.session.tools import engine_tools
from headstart.gateway.session.video_input import VideoInput


class SessionUpdates:
    """If a method raises `ProtocolError`, nothing has changed."""

    def __init__(
        self,
        context: SessionContext,
        speech: InputSpeech,
        out: SpeechOutput,
        pictures: VideoInput,
        offer: ResumeOffer,
    ) -> None:
        self._context = context
        self._speech = speech
        self._out = out
        self._pictures = pictures
        self._offer = offer

    def preset(self, update: SessionUpdate, now_ns: int) -> None:
        """Apply settings that came with the connection; they may change the session type."""
        before = self._context.config
        self._context.config = before.of_type(update.type).apply(update)
        self._follow(before, now_ns)

    def update(self, event: SessionUpdateEvent, now_ns: int) -> None:
        """Apply a client's `session.update`."""
        context = self._context
        before = context.config
        context.config = before.apply(event.session, voice_locked=self._out.has_spoken)
        context.send(context.events.session_updated(context.config.to_wire()))
        self._offer.announce(before)
        now = context.config
        if (now.instructions, now.tools) != (before.instructions, before.tools):
            note, tools = blind_note(now.instructions), engine_tools(now.tools)
            context.send_to_engine(api.Instruct(context.session_id, now.instructions, note, tools))
        remember(context, before)
        self._follow(before, now_ns)

    def _follow(self, before: SessionConfig, now_ns: int) -> None:
        self._speech.configure(now_ns)
        video = _video(self._context.config)
        if video != _video(before):
            self._pictures.configure(video)


def _video(config: SessionConfig) -> VideoOptions | None:
    return None if config.gateway is None else config.gateway.video


def open_command(context: SessionContext) -> api.Open:
    """The command that opens this session in an engine."""
    config = context.config
    for kept in context.conversation:
        kept.known = kept.engine is not None and context.engine_keeps
    return api.Open(
        context.session_id,
        config.instructions,
        context.conversation.for_engine(),
        blind_note(config.instructions),
        window_of(config, context.settings),
        engine_tools(config.tools),
        config.only_transcribes,
    )
