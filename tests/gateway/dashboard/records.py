"""Records of turns that never were, and a clock that a test turns."""

from __future__ import annotations

import json
from typing import Any

from headstart.engine import api
from headstart.gateway.dashboard.hub import Hub
from headstart.gateway.dashboard.messages import Message
from headstart.gateway.telemetry.latency import ChunkBudget, TurnBudget, TurnStamps
from headstart.gateway.telemetry.turn_record import TurnChunk, TurnRecord, Voice

NS_PER_MS = 1_000_000
Json = dict[str, Any]


class Clock:
    """Nanoseconds, set by hand."""

    def __init__(self) -> None:
        self.ns = 1_000 * NS_PER_MS

    def __call__(self) -> int:
        return self.ns

    def go(self, ms: float) -> None:
        self.ns += round(ms * NS_PER_MS)


def hub_at(clock: Clock) -> Hub:
    """Started at 13:00 by the wall clock."""
    return Hub(clock, wall_s=1_795_957_200.0)


def record(
    response_id: str = "resp_1",
    at_ns: int = 5_000 * NS_PER_MS,
    spans: int = 3,
    chunks: int = 2,
    **changes: Any,
) -> TurnRecord:
    """A spoken turn whose last speech came at `at_ns`: 500 ms of silence, then 50 ms of work."""
    endpoint_ns, delta_ns = at_ns + 500 * NS_PER_MS, at_ns + 550 * NS_PER_MS
    hidden = [
        api.Span("encode", at_ns - (10 * i + 5) * NS_PER_MS, at_ns - 10 * i * NS_PER_MS)
        for i in range(spans - 1)
    ]
    stamps = TurnStamps(
        sent_ns=delta_ns + NS_PER_MS,
        last_speech_received_ns=at_ns,
        endpoint_ns=endpoint_ns,
        first_delta_received_ns=delta_ns,
        spans=(*hidden, api.Span("prefill", endpoint_ns, delta_ns)),
    )
    budget = ChunkBudget(0, 500.0, {"encode": 40.0}, 64.0)
    heard = tuple(
        TurnChunk(at_ns - (chunks - i) * 500 * NS_PER_MS, budget, 4, 1) for i in range(chunks)
    )
    fields: Json = {
        "response_id": response_id,
        "session_id": "sess_1",
        "item_id": "item_1",
        "turn": 1,
        "generation": 1,
        "model": "small",
        "stamps": stamps,
        "budget": TurnBudget.from_stamps(stamps),
        "latency_budget_ms": 800,
        "done_ns": delta_ns + 900 * NS_PER_MS,
        "reason": "completed",
        "hangover": {"owner": "setting", "setting": "silence_duration_ms", "value": 500},
        "chunks": heard,
        "voice": Voice(delta_ns + 50 * NS_PER_MS, delta_ns + 150 * NS_PER_MS, 1000, None),
        "usage": api.Usage(input_text=5, cached=10, output=3, speculated=2, wasted=1),
        "kv": api.KvStats(15, 1, 1500, 100, {"text": 15}),
    }
    return TurnRecord(**(fields | changes))


def parsed(messages: list[Message]) -> list[Json]:
    return [json.loads(message.line()) for message in messages]
