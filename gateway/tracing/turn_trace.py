"""A turn's record as a tree of spans. No I/O, no clock; instants are those of the record.

    turn
    ├─ user_speech            first chunk's sound ─▶ last speech received
    │   ├─ chunk …            its receipt ─▶ its words in the KV cache
    │   └─ prefill …          what the engine did before the endpoint
    ├─ endpointing_wait       last speech received ─▶ endpoint
    ├─ realtime_inference M   endpoint or request ─▶ answer done
    │   └─ queue, prefill, decode_first …
    ├─ speech                 first clause ─▶ first sound sent
    └─ playout                first sound sent ─▶ heard

What nobody measured has no span. Nothing that was said is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headstart.gateway.telemetry.latency import TurnBudget
from headstart.gateway.telemetry.turn_record import TurnChunk, TurnRecord
from headstart.gateway.tracing import names

Value = str | bool | int | float

ENGINE_SPANS_MAX = 256  # newest ones of a turn
NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class TraceSpan:
    """One span in monotonic ns. `error`: the code of what went wrong."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value] = field(default_factory=dict)
    children: tuple[TraceSpan, ...] = ()
    error: str | None = None


def trace_of(record: TurnRecord) -> TraceSpan:
    """The root span, `turn`, which holds all others in time."""
    parts = (
        _user_speech(record),
        _endpointing(record),
        _inference(record),
        _speech(record),
        _playout(record),
    )
    children = tuple(part for part in parts if part is not None)
    starts = [record.origin_ns, *(child.start_ns for child in children)]
    ends = [record.done_ns, *(child.end_ns for child in children)]
    error = None if record.error is None else record.error[0]
    start_ns = min(starts)
    return TraceSpan(names.TURN, start_ns, max(ends), _of_turn(record), children, error)


def _of_turn(record: TurnRecord) -> dict[str, Value]:
    known: dict[str, Value] = {
        names.CONVERSATION: record.session_id,
        names.RESPONSE: record.response_id,
        names.TURN_NUMBER: record.turn,
        names.WAS_INTERRUPTED: record.interrupted,
        names.REALTIME: record.stamps.realtime,
        names.REASON: record.reason,
    }
    budget = record.budget
    if isinstance(budget, TurnBudget):
        known[names.ANCHOR] = budget.anchor.value
        known[names.FIRST_TOKEN] = budget.total_ns / 1e9
        known[names.HIDDEN_WORK] = budget.hidden_ns / 1e9
        known[names.OVER_BUDGET] = budget.over_budget
        known[names.USER_BOT_LATENCY] = (_answered_ns(record) - record.origin_ns) / 1e9
    return known


def _answered_ns(record: TurnRecord) -> int:
    """The first that the user got of the answer: sound where it is spoken, else text."""
    sound_ns = None if record.voice is None else record.voice.first_sound_ns
    return record.stamps.sent_ns if sound_ns is None else sound_ns


def _asked_ns(record: TurnRecord) -> int | None:
    """When the answer was due: the endpoint or the request."""
    stamps = record.stamps
    spoken = stamps.last_speech_received_ns is not None
    return stamps.endpoint_ns if spoken else stamps.requested_ns


def _user_speech(record: TurnRecord) -> TraceSpan | None:
    last_ns = record.stamps.last_speech_received_ns
    if last_ns is None:
        return None
    asked_ns = _asked_ns(record)
    chunks = tuple(_chunk(chunk, asked_ns) for chunk in record.chunks)
    start_ns = min([last_ns, *(chunk.start_ns for chunk in record.chunks)])
    return TraceSpan(
        names.USER_SPEECH, start_ns, last_ns, {}, (*chunks, *_engine(record, hidden=True))
    )


def _chunk(chunk: TurnChunk, asked_ns: int | None) -> TraceSpan:
    budget = chunk.budget
    received_ns = chunk.start_ns + round(budget.duration_ms * NS_PER_MS)
    done_ns = received_ns + round(budget.latency_ms * NS_PER_MS)
    return TraceSpan(
        names.CHUNK,
        received_ns,
        done_ns,
        {
            names.HIDDEN: asked_ns is None or done_ns <= asked_ns,
            names.CHUNK_SECONDS: budget.duration_ms / 1000,
            names.CHUNK_HEADROOM: budget.headroom_percent / 100,
            names.CHUNK_OVERRUN: budget.overrun,
            names.PREFILLED: chunk.prefilled,
            names.ROLLED_BACK: chunk.rolled_back,
        },
    )


def _endpointing(record: TurnRecord) -> TraceSpan | None:
    stamps = record.stamps
    if stamps.last_speech_received_ns is None or stamps.endpoint_ns is None:
        return None
    wait = record.hangover
    told = {
        names.WAIT_OWNER: wait.get("owner"),
        names.WAIT_SETTING: wait.get("setting"),
        names.WAIT_VALUE: wait.get("value"),
    }
    known = {name: value for name, value in told.items() if value is not None}
    end_ns = max(stamps.endpoint_ns, stamps.last_speech_received_ns)
    return TraceSpan(names.ENDPOINTING_WAIT, stamps.last_speech_received_ns, end_ns, known)


def _inference(record: TurnRecord) -> TraceSpan | None:
    asked_ns = _asked_ns(record)
    if asked_ns is None:
        return None
    known: dict[str, Value] = {
        names.OPERATION: names.OPERATION_REALTIME,
        names.PROVIDER: names.PROVIDER_HEADSTART,
        names.MODEL: record.model,
        names.CONVERSATION: record.session_id,
        names.RESPONSE: record.response_id,
    }
    if record.usage is not None:
        known[names.INPUT_TOKENS] = record.usage.input
        known[names.CACHED_TOKENS] = record.usage.cached
        known[names.OUTPUT_TOKENS] = record.usage.output
    code = None if record.error is None else record.error[0]
    return TraceSpan(
        f"{names.INFERENCE} {record.model}",
        asked_ns,
        max(asked_ns, record.done_ns),
        known,
        _engine(record, hidden=False),
        code,
    )


def _engine(record: TurnRecord, *, hidden: bool) -> tuple[TraceSpan, ...]:
    """The engine's spans that were over before the answer was due, or the others."""
    asked_ns = _asked_ns(record)
    return tuple(
        TraceSpan(span.stage, span.start_ns, span.end_ns, {names.HIDDEN: hidden})
        for span in record.stamps.spans[-ENGINE_SPANS_MAX:]
        if (asked_ns is not None and span.end_ns <= asked_ns) == hidden
    )


def _speech(record: TurnRecord) -> TraceSpan | None:
    voice = record.voice
    if voice is None or voice.first_sound_ns is None:
        return None
    begun_ns = record.stamps.sent_ns if voice.first_clause_ns is None else voice.first_clause_ns
    begun_ns = min(begun_ns, voice.first_sound_ns)
    known = {names.AUDIO_SECONDS: voice.audio_ms / 1000}
    return TraceSpan(names.SPEECH, begun_ns, voice.first_sound_ns, known)


def _playout(record: TurnRecord) -> TraceSpan | None:
    sound_ns = None if record.voice is None else record.voice.first_sound_ns
    if sound_ns is None or record.playout is None:
        return None
    known = {names.PLAYOUT_SOURCE: record.playout.source}
    return TraceSpan(names.PLAYOUT, sound_ns, max(sound_ns, record.playout.started_ns), known)
