"""Nobody has said anything for long after an answer: `turn_detection.idle_timeout_ms`.

Time is the sample clock's, so a client that sends no sound is absent, not idle. The silence becomes
an item, as in the API. There it is heard by the model; our ears make words, and silence has none,
so what the model reads of it is a word for it, and for this one answer a note.
"""

from __future__ import annotations

from openai.types.realtime import RealtimeResponseCreateParams

from engine import api
from gateway.answers import Answers
from gateway.manner import SILENCE, SILENCE_NOTE
from gateway.media.timebase import hear_ms, hear_ms_exact, hear_samples
from gateway.protocol.session_config import ServerVadConfig, SessionConfig
from gateway.state import SessionState
from gateway.transcripts import add_spoken
from gateway.turns import TurnState


class Idle:
    """One session's. `look` at it after each packet."""

    def __init__(self, state: SessionState, answers: Answers) -> None:
        self._state = state
        self._answers = answers
        self._config = state.config  # that `_timeout_ms` is of
        self._timeout_ms = self._timeout_of(state.config)

    def look(self, clock_samples: int, now_ns: int) -> None:
        """So much of the session's sound has come."""
        state = self._state
        if not state.idle.armed:
            return
        if self._config is not state.config:
            self._config, self._timeout_ms = state.config, self._timeout_of(state.config)
        busy = self._timeout_ms is None or not state.engine_up
        busy = busy or state.turns.state is not TurnState.QUIET or self._answers.audible(now_ns)
        timeout_samples = hear_samples(self._timeout_ms or 0)
        silence = state.idle.look(clock_samples, timeout_samples, busy=busy)
        if silence is not None:
            self._prompt(*silence, now_ns)

    @staticmethod
    def _timeout_of(config: SessionConfig) -> int | None:
        turns = config.turn_detection
        if config.only_transcribes or not isinstance(turns, ServerVadConfig):
            return None
        may_answer = turns.create_response or turns.interrupt_response  # as the API has it
        return turns.idle_timeout_ms if may_answer else None

    def _prompt(self, start_sample: int, end_sample: int, now_ns: int) -> None:
        state = self._state
        item_id = state.ids.item()
        start_ms, end_ms = hear_ms(start_sample), hear_ms(end_sample)
        state.send(state.events.timeout_triggered(item_id, start_ms, end_ms))
        kept = add_spoken(state, item_id, "")
        kept.engine = api.Item(item_id, api.Role.USER, (api.Text(SILENCE),))
        state.tell(api.AddItem(state.session_id, kept.engine, state.talk.engine_place(item_id)))
        if state.config.transcription is not None:
            silent_s = hear_ms_exact(end_sample - start_sample) / 1000
            state.send(state.events.transcription_completed(item_id, "", silent_s))
        note = RealtimeResponseCreateParams(instructions=SILENCE_NOTE)
        self._answers.create(note, None, now_ns)
