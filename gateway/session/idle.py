"""The idle timeout: nobody speaks for `turn_detection.idle_timeout_ms` after a response.

    response over ─▶ armed ─(nobody speaks, nothing plays)─▶ counting ─▶ timeout
                       ▲──────── speech, a response ────────────┘

Time is counted on the sample clock, so a client that sends no audio is absent, not idle. As in the
API, the silence becomes an item. The API's model hears that silence; our recogniser has no words
for it, so the model reads a placeholder text, and an extra instruction for this one response.

"""

from __future__ import annotations

from openai.types.realtime import RealtimeResponseCreateParams

from headstart.engine import api
from headstart.gateway.audio.clock import (
    engine_samples_to_exact_ms,
    engine_samples_to_ms,
    ms_to_engine_samples,
)
from headstart.gateway.default_prompts import SILENCE, SILENCE_NOTE
from headstart.gateway.protocol.session_config import ServerVadConfig, SessionConfig
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.responses import ResponseManager
from headstart.gateway.session.transcription import add_spoken_item
from headstart.gateway.session.turns import TurnState


class IdleClock:
    """The idle clock of one session, in 16 kHz samples since the session began."""

    def __init__(self) -> None:
        self.armed = False
        self._since_sample: int | None = None

    def arm(self) -> None:
        """A response is over: start counting at the next `look`."""
        self.armed, self._since_sample = True, None

    def look(self, now_sample: int, timeout_samples: int, *, busy: bool) -> tuple[int, int] | None:
        """Returns the silence as [start, end) samples once it has lasted `timeout_samples`, and
        then None until the next response is over. `busy`: somebody speaks, audio is playing, or no
        timeout is set."""
        if not self.armed:
            return None
        if busy:
            self._since_sample = None
            return None
        if self._since_sample is None:
            self._since_sample = now_sample
        if now_sample - self._since_sample < timeout_samples:
            return None
        self.armed = False
        return self._since_sample, self._since_sample + timeout_samples


class Idle:
    """The idle timeout of one session. Call `look` after each packet."""

    def __init__(self, context: SessionContext, responses: ResponseManager) -> None:
        self._context = context
        self._responses = responses
        self._given = responses.given
        self._clock = IdleClock()
        self._config = context.config  # the config that `_timeout_ms` was computed from
        self._timeout_ms = self._timeout_of(context.config)

    def look(self, clock_samples: int, now_ns: int) -> None:
        """Advance to `clock_samples` of the session's audio, and prompt at the timeout."""
        context = self._context
        if self._given != self._responses.given:
            self._given = self._responses.given
            self._clock.arm()
        if not self._clock.armed:
            return
        if self._config is not context.config:
            self._config, self._timeout_ms = context.config, self._timeout_of(context.config)
        busy = self._timeout_ms is None or not context.engine_up
        busy = busy or context.turns.state is not TurnState.QUIET or self._responses.audible(now_ns)
        timeout_samples = ms_to_engine_samples(self._timeout_ms or 0)
        silence = self._clock.look(clock_samples, timeout_samples, busy=busy)
        if silence is not None:
            self._prompt(*silence, now_ns)

    @staticmethod
    def _timeout_of(config: SessionConfig) -> int | None:
        turns = config.turn_detection
        if config.only_transcribes or not isinstance(turns, ServerVadConfig):
            return None
        may_answer = turns.create_response or turns.interrupt_response  # as in the API
        return turns.idle_timeout_ms if may_answer else None

    def _prompt(self, start_sample: int, end_sample: int, now_ns: int) -> None:
        context = self._context
        item_id = context.ids.item()
        start_ms, end_ms = engine_samples_to_ms(start_sample), engine_samples_to_ms(end_sample)
        context.send(context.events.timeout_triggered(item_id, start_ms, end_ms))
        kept = add_spoken_item(context, item_id, "")
        kept.engine = api.Item(item_id, api.Role.USER, (api.Text(SILENCE),))
        context.send_to_engine(
            api.AddItem(context.session_id, kept.engine, context.conversation.engine_place(item_id))
        )
        if context.config.transcription is not None:
            silent_s = engine_samples_to_exact_ms(end_sample - start_sample) / 1000
            context.send(context.events.transcription_completed(item_id, "", silent_s))
        note = RealtimeResponseCreateParams(instructions=SILENCE_NOTE)
        self._responses.create(note, None, now_ns)
