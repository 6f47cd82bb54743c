"""What is told of turns: to the observer chunks, errors and a record of each response that is done,
and to a client that asked for it the response's latency report.

    chunk ─▶ kept with its utterance ─┐
    response over ─▶ waits for the first token's stamp, if that is still to come ─▶ record, report
    heard, first sound sent, cut ─▶ the same record, of the next revision; the report if it changed

Bounds: chunks of the newest `UTTERANCES_KEPT` utterances, `CHUNKS_KEPT` of each; records of the
newest `RECORDS_KEPT` spoken responses, of which more may be learnt.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any, Literal

from headstart.engine import api
from headstart.gateway.audio.client_clock import ClientClock
from headstart.gateway.audio.clock import NS_PER_MS
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.extensions import PlayoutStarted
from headstart.gateway.protocol.session_config import ServerVadConfig
from headstart.gateway.session.active_response import ActiveResponse
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.response import Ending, report_kv
from headstart.gateway.telemetry.latency import ChunkBudget
from headstart.gateway.telemetry.turn_record import (
    CHUNKS_KEPT,
    Playout,
    TurnChunk,
    TurnRecord,
    Voice,
    move_to_wire,
)
from headstart.gateway.tts.spoken_response import SpokenResponse

UTTERANCES_KEPT = 4
RECORDS_KEPT = 8
CLOCK_SLACK_NS = 5 * NS_PER_MS
"""A client's clock is matched to ours by its quickest packet, which may have been this slow."""


@dataclasses.dataclass(slots=True)
class _Known:
    """A response of which more may be learnt. `record`: None while it runs."""

    running: ActiveResponse
    record: TurnRecord | None = None
    playout: Playout | None = None


class TurnReports:
    """One session's."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._chunks: dict[int, deque[TurnChunk]] = {}
        self._over: list[tuple[ActiveResponse, Ending | None, int | None]] = []
        self._known: dict[str, _Known] = {}
        self._client_gone = False

    # --- while it goes on ------------------------------------------------------------------------

    def chunk(self, chunk: api.Chunk, budget: ChunkBudget, now_ns: int) -> None:
        """A chunk's words are in the KV cache: its last sample came `latency_ms` before."""
        began_ns = now_ns - round((budget.latency_ms + budget.duration_ms) * NS_PER_MS)
        kept = self._chunks.setdefault(chunk.ref.turn, deque(maxlen=CHUNKS_KEPT))
        prefilled, rolled_back = chunk.prefilled_tokens, chunk.rolled_back_tokens
        kept.append(TurnChunk(began_ns, budget, prefilled, rolled_back))
        if len(self._chunks) > UTTERANCES_KEPT:
            del self._chunks[next(iter(self._chunks))]
        self._context.observer.chunk(chunk, budget)

    def begun(self, running: ActiveResponse) -> None:
        """A response was asked for: what its wait is owed to is what is in force now."""
        running.hangover = _hangover(self._context)
        self._known[running.response.facts.response_id] = _Known(running)
        if len(self._known) > RECORDS_KEPT:
            done = (name for name, known in self._known.items() if known.record is not None)
            self._known.pop(next(done, next(iter(self._known))))

    def over(self, running: ActiveResponse, ending: Ending | None) -> None:
        """A response is done; `ending` None: the session ends, and it with it. Of one that the
        client never heard of nothing is told."""
        if running.announced:
            self._over.append((running, ending, None))
        else:
            self._known.pop(running.response.facts.response_id, None)

    def settle(self, now_ns: int) -> None:
        """The end of each of the session's calls: tell of what was done in it."""
        if not self._over:
            return
        waiting: list[tuple[ActiveResponse, Ending | None, int | None]] = []
        for running, ending, done_ns in self._over:
            done_ns = now_ns if done_ns is None else done_ns
            if running.stamp_pending:
                waiting.append((running, ending, done_ns))
            else:
                self._record(running, ending, done_ns)
        self._over = waiting[-RECORDS_KEPT:]

    def close(self, now_ns: int) -> None:
        """The session ends: no more stamps will come, and no client is left to be told."""
        self._client_gone = True
        for running, _, _ in self._over:
            running.stamp_pending = False
        self.settle(now_ns)

    # --- what is learnt later --------------------------------------------------------------------

    def sound_sent(self, response_id: str, now_ns: int) -> None:
        """The first sound of a response that is over is on its way only now."""
        known = self._known.get(response_id)
        speaking = None if known is None else known.running.speaking
        if known is not None and speaking is not None and speaking.first_sound_ns is None:
            speaking.first_sound_ns = now_ns
            self._revise(known)

    def looked_for_cuts(self) -> None:
        """Something that is played was cut: somebody spoke over it, or the client stopped it."""
        for known in self._known.values():
            if _was_cut(known.running.speaking):
                self._revise(known)

    def revoked(self, running: ActiveResponse) -> None:
        """A response was taken back: the speaker's message continues."""
        known = self._known.get(running.response.facts.response_id)
        if known is not None:
            self._revise(known)

    def heard_on_track(self, response_id: str | None, now_ns: int) -> None:
        """Our own playout has begun to play it."""
        known = None if response_id is None else self._known.get(response_id)
        if known is not None and known.playout is None:
            known.playout = Playout(now_ns, "track")
            self._revise(known)

    def heard(self, event: PlayoutStarted, clock: ClientClock, now_ns: int) -> None:
        """A client says when it began to play an answer; the first time counts. Raises
        `ProtocolError` for an answer that this session has not spoken lately, and for an instant
        that has not come yet or at which nothing had been sent."""
        known = self._known.get(event.response_id)
        speaking = None if known is None else known.running.speaking
        sound_ns = None if speaking is None else speaking.first_sound_ns
        if known is None or sound_ns is None:
            raise errors.invalid_value(
                "response_id", "a response of this session that was spoken", event.response_id
            )
        started_ns = _started_ns(event, clock, sound_ns, now_ns)
        if known.playout is None and started_ns is not None:
            known.playout = Playout(started_ns, "client")
            self._revise(known)

    # --- within ----------------------------------------------------------------------------------

    def _revise(self, known: _Known) -> None:
        before = known.record
        if before is None:
            return  # it will be in the first one
        speaking = known.running.speaking
        now = dataclasses.replace(
            before,
            voice=_voice(speaking),
            playout=known.playout,
            interrupted=before.interrupted or _is_cut(known.running),
            revoked_ms=_revoked_ms(known.running),
        )
        if now != before:
            record = known.record = dataclasses.replace(now, revision=before.revision + 1)
            self._context.observer.turn(record)
            if record.budget_to_wire() != before.budget_to_wire():
                self._tell_client(known.running, record)

    def _record(self, running: ActiveResponse, ending: Ending | None, done_ns: int) -> None:
        context, facts = self._context, running.response.facts
        known = self._known.get(facts.response_id) or _Known(running)
        if running.speaking is None and not running.is_revocable:  # nothing more to learn of it
            self._known.pop(facts.response_id, None)
        outcome, speaking = running.outcome, running.speaking
        by_speech = ending is not None and ending.details.reason == "turn_detected"
        error = None
        if ending is not None and ending.status == "failed":
            error = ending.details.code or "failed", ending.details.message or ""
            context.observer.error(*error, context.session_id, facts.response_id)
        known.record = TurnRecord(
            response_id=facts.response_id,
            session_id=context.session_id,
            item_id=running.question_id,
            turn=running.turn,
            generation=facts.generation,
            model=context.config.model,
            stamps=running.stamps,
            budget=running.budget,
            latency_budget_ms=context.latency_budget_ms,
            done_ns=done_ns,
            reason="disconnected" if ending is None else ending.details.type,
            hangover=running.hangover,
            chunks=tuple(self._chunks.pop(running.turn, ())),
            voice=_voice(speaking),
            playout=known.playout,
            usage=None if outcome is None else outcome.usage,
            kv=None if outcome is None else outcome.kv,
            decode_tok_s=None if outcome is None else outcome.decode_tok_s,
            interrupted=by_speech or _is_cut(running),
            revoked_ms=_revoked_ms(running),
            error=error,
            moves=() if outcome is None else outcome.moves,
            camera=context.take_camera(),
            text=self._text(running),
        )
        context.observer.turn(known.record)
        self._tell_client(running, known.record)

    def _tell_client(self, running: ActiveResponse, record: TurnRecord) -> None:
        """Send the latency report; again when the first sound, or when it was heard, became known
        only afterwards."""
        context, outcome = self._context, running.outcome
        if outcome is None or record.budget is None or self._client_gone:
            return  # the engine was lost, or nothing was sent that one could count to
        known_item = running.question_id in context.conversation
        report = context.events.latency_report(
            turn=record.turn,
            item_id=running.question_id if known_item else None,
            response_id=record.response_id,
            budget=record.budget_to_wire(),
            revision=record.revision,
            kv=report_kv(outcome.kv),
            chunks=context.chunks.to_wire(),
            usage={
                "input_tokens": outcome.usage.input,
                "cached_tokens": outcome.usage.cached,
                "output_tokens": outcome.usage.output,
                "speculated_tokens": outcome.usage.speculated,
                "wasted_tokens": outcome.usage.wasted,
            },
            decode_tok_s=outcome.decode_tok_s,
            moves=[move_to_wire(move) for move in outcome.moves],
            voice=record.voice_to_wire(),
        )
        context.send_ours("latency", report)

    def _text(self, running: ActiveResponse) -> tuple[str | None, str] | None:
        context = self._context
        if not context.settings.dashboard_content:
            return None
        kept = (
            None if running.question_id is None else context.conversation.find(running.question_id)
        )
        said = None if kept is None else kept.wire["content"][0].get("transcript")
        return said, running.response.text


def _started_ns(
    event: PlayoutStarted, clock: ClientClock, sound_ns: int, now_ns: int
) -> int | None:
    """Raises `ProtocolError`."""
    if event.played_at_ms is not None:
        name, told = "played_at_ms", event.played_at_ms
        started_ns = clock.look(told)
        if started_ns is None:
            return None  # a clock of which nothing is known
    elif event.delay_ms is not None:
        name, told = "delay_ms", event.delay_ms
        started_ns = sound_ns + round(told * NS_PER_MS)
    else:
        raise errors.missing_parameter("delay_ms")
    if started_ns > now_ns + CLOCK_SLACK_NS:
        late_ms = (started_ns - now_ns) // NS_PER_MS
        raise errors.invalid_value(name, f"no later than now, and it is {late_ms} ms later", told)
    if started_ns < sound_ns - CLOCK_SLACK_NS:
        raise errors.invalid_value(name, "after the answer's first sound was sent", told)
    return min(max(started_ns, sound_ns), now_ns)


def _voice(speaking: SpokenResponse | None) -> Voice | None:
    if speaking is None:
        return None
    clause_ns, sound_ns = speaking.first_clause_ns, speaking.first_sound_ns
    return Voice(clause_ns, sound_ns, speaking.duration_ms, speaking.problem or None)


def _is_cut(running: ActiveResponse) -> bool:
    """Whether some of a response was not heard, or was taken back."""
    return running.revoked_ns is not None or _was_cut(running.speaking)


def _was_cut(speaking: SpokenResponse | None) -> bool:
    return speaking is not None and speaking.heard_ms < speaking.duration_ms


def _revoked_ms(running: ActiveResponse) -> float | None:
    """How much of an answer was played before it was taken back; None if it was not. Exact once the
    playout or the client has told where it stopped; until then all that may have been played."""
    speaking, revoked_ns = running.speaking, running.revoked_ns
    if revoked_ns is None:
        return None
    if speaking is None or speaking.first_sound_ns is None:
        return 0.0
    since_ms = (revoked_ns - speaking.first_sound_ns) / NS_PER_MS
    return round(max(0.0, min(since_ms, speaking.heard_ms)), 3)


def _hangover(context: SessionContext) -> dict[str, Any]:
    """What makes a session wait for the end of speech."""
    turns = context.config.turn_detection
    if turns is None:
        return {"owner": "client"}  # it commits by hand
    setting: tuple[Literal["silence_duration_ms", "eagerness"], Any]
    if isinstance(turns, ServerVadConfig):
        setting = "silence_duration_ms", turns.silence_duration_ms
    else:
        setting = "eagerness", turns.eagerness
    name, value = setting
    wait = {"owner": "setting", "setting": name, "value": value}
    if name == "silence_duration_ms" and context.endpointing != "fixed":
        wait["endpointing"] = context.endpointing
    return wait
