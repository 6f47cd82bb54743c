"""Where the waits of a turn lie in time, for waterfalls and traces."""

from __future__ import annotations

from typing import NamedTuple

from headstart.recordings.stages import row_of
from headstart.recordings.turns import Span, Turn

SPEECH_ANCHORS = ("captured", "departed", "received")


class Bar(NamedTuple):
    """A part of a stage, in ms from the turn's time 0. `hidden`: it cost nobody any time."""

    row: str
    stage: str
    start_ms: float
    end_ms: float
    hidden: bool


def bars_of(turn: Turn) -> list[Bar]:
    """In the order of the stages' rows as the turn passes them, none empty."""
    stamps = turn.stamps
    endpoint = endpoint_of(turn)
    bars: list[Bar] = []

    def add(stage: str, start: float | None, end: float | None, hidden: bool = False) -> None:
        if start is not None and end is not None and end > start:
            bars.append(Bar(row_of(stage), stage, start, end, hidden))

    if turn.anchor in SPEECH_ANCHORS:
        at = 0.0
        for stage in ("network", "buffer", "resample"):
            took = turn.stages.get(stage) or 0.0
            add(stage, at, at + took)
            at += took
        add("vad_hangover", at, endpoint)
    for stage, start, end in turn.spans:
        add(stage, start, min(end, endpoint), hidden=True)
        add(stage, max(start, endpoint), end)
    first_delta, first_token = stamps.get("first_delta"), stamps.get("first_token")
    served = first_token if first_delta is None else first_delta
    if served is not None:
        for start, end in _gaps(turn.spans, endpoint, served):
            add("queue", start, end)
    add("send", first_delta, first_token)
    spoken_from = stamps.get("first_clause") if first_token is None else first_token
    add("voice", spoken_from, stamps.get("first_sound"))
    add("playout", stamps.get("first_sound"), stamps.get("playout_started"))
    return bars


def endpoint_of(turn: Turn) -> float:
    """When the turn's own work stopped being free: at the endpoint, or at the request."""
    endpoint = turn.stamps.get("endpoint")
    endpoint = turn.stamps.get("requested") if endpoint is None else endpoint
    return 0.0 if endpoint is None else endpoint


def instants_of(turn: Turn) -> list[tuple[str, float]]:
    """Moments worth a mark, in ms from the turn's time 0."""
    named = {
        "endpoint": "endpoint",
        "first token": "first_token",
        "first sound": "first_sound",
        "heard": "playout_started",
    }
    marks = [(name, turn.stamps.get(stamp)) for name, stamp in named.items()]
    return [(name, ms) for name, ms in marks if ms is not None]


def _gaps(spans: list[Span], start: float, end: float) -> list[tuple[float, float]]:
    """The parts of [start, end) in which no span runs: somebody waited for a step."""
    found = []
    at = start
    for _, span_start, span_end in sorted(spans, key=lambda span: span[1]):
        if span_start > at:
            found.append((at, min(span_start, end)))
        at = max(at, span_end)
        if at >= end:
            break
    if at < end:
        found.append((at, end))
    return [(a, b) for a, b in found if b > a]
