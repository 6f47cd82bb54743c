"""A session's settings as they change: what follows from an update for each part of it."""

from __future__ import annotations

from openai.types.realtime import SessionUpdateEvent

from engine import api
from gateway.answers import Answers
from gateway.manner import blind_note
from gateway.pictures_in import PicturesIn
from gateway.protocol.extensions import VideoOptions
from gateway.protocol.session_config import SessionConfig, SessionUpdate
from gateway.resume.offer import Offer
from gateway.speech_in import SpeechIn
from gateway.speech_out import SpeechOut
from gateway.state import SessionState
from gateway.tools import engine_tools
from gateway.window import remember, window_of


class Updates:
    """Both methods raise `ProtocolError`, and then nothing has changed."""

    def __init__(
        self,
        state: SessionState,
        speech: SpeechIn,
        answers: Answers,
        out: SpeechOut,
        pictures: PicturesIn,
        offer: Offer,
    ) -> None:
        self._state = state
        self._speech = speech
        self._answers = answers
        self._out = out
        self._pictures = pictures
        self._offer = offer

    def preset(self, update: SessionUpdate, now_ns: int) -> None:
        """Settings that came with the connection; they may be those of another type of session."""
        before = self._state.config
        self._state.config = before.of_type(update.type).apply(update)
        self._follow(before, now_ns)

    def update(self, event: SessionUpdateEvent, now_ns: int) -> None:
        """A client's `session.update`."""
        state = self._state
        before = state.config
        state.config = before.apply(event.session, voice_locked=self._out.has_spoken)
        state.send(state.events.session_updated(state.config.to_wire()))
        self._offer.announce(before)
        now = state.config
        if (now.instructions, now.tools) != (before.instructions, before.tools):
            note, tools = blind_note(now.instructions), engine_tools(now.tools)
            state.tell(api.Instruct(state.session_id, now.instructions, note, tools))
        remember(state, before)
        self._follow(before, now_ns)

    def _follow(self, before: SessionConfig, now_ns: int) -> None:
        self._speech.configure(self._answers, now_ns)
        video = _video(self._state.config)
        if video != _video(before):
            self._pictures.configure(video)


def _video(config: SessionConfig) -> VideoOptions | None:
    return None if config.gateway is None else config.gateway.video


def open_command(state: SessionState) -> api.Open:
    """What an engine is told of a session that it does not know."""
    config = state.config
    for kept in state.talk:
        kept.known = kept.engine is not None and state.engine_keeps
    return api.Open(
        state.session_id,
        config.instructions,
        state.talk.for_engine(),
        blind_note(config.instructions),
        window_of(config, state.settings),
        engine_tools(config.tools),
        config.only_transcribes,
    )
