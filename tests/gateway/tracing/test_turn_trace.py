"""A record's spans: where each begins and ends, and who owns it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from headstart.engine.api import Chunk, Span, TurnRef, Usage
from headstart.gateway.telemetry.latency import ChunkBudget, TurnBudget, TurnStamps
from headstart.gateway.telemetry.turn_record import Playout, TurnChunk, TurnRecord, Voice
from headstart.gateway.tracing import names
from headstart.gateway.tracing.turn_trace import ENGINE_SPANS_MAX, TraceSpan, trace_of

MS = 1_000_000


def spoken(**more: Any) -> TurnRecord:
    """Speech until 1000 ms, its end known at 1500, first token at 1600, sound at 1700, heard at
    1750, done at 2000."""
    chunk = Chunk("s", TurnRef(1), 0, 8000, {"encode": 50.0}, 100.0, 4, 1)
    stamps = TurnStamps(
        sent_ns=1600 * MS,
        last_speech_received_ns=1000 * MS,
        endpoint_ns=1500 * MS,
        first_delta_received_ns=1590 * MS,
        spans=(
            Span("prefill", 1100 * MS, 1150 * MS),
            Span("queue", 1500 * MS, 1510 * MS),
            Span("prefill", 1510 * MS, 1550 * MS),
            Span("decode_first", 1550 * MS, 1590 * MS),
        ),
    )
    record = TurnRecord(
        response_id="resp_1",
        session_id="sess_1",
        item_id="item_1",
        turn=3,
        generation=5,
        model="small",
        stamps=stamps,
        budget=TurnBudget.from_stamps(stamps),
        latency_budget_ms=800,
        done_ns=2000 * MS,
        reason="completed",
        hangover={"owner": "setting", "setting": "silence_duration_ms", "value": 500},
        chunks=(TurnChunk(0, ChunkBudget.from_chunk(chunk), 4, 1),),
        voice=Voice(1620 * MS, 1700 * MS, 900.0, None),
        playout=Playout(1750 * MS, "client"),
        usage=Usage(input_text=10, input_audio=5, cached=12, output=7),
        text=("the question", "the answer"),
    )
    return dataclasses.replace(record, **more)


def every(span: TraceSpan) -> Iterator[TraceSpan]:
    yield span
    for child in span.children:
        yield from every(child)


def times(span: TraceSpan) -> tuple[str, float, float]:
    return span.name, span.start_ns / MS, span.end_ns / MS


def test_a_spoken_turn_from_capture_to_ear() -> None:
    """Its parts in order; hidden work is under the speech, what was waited for is not."""
    root = trace_of(spoken())
    assert times(root) == ("turn", 0, 2000)
    assert [times(part) for part in root.children] == [
        ("user_speech", 0, 1000),
        ("endpointing_wait", 1000, 1500),
        ("realtime_inference small", 1500, 2000),
        ("speech", 1620, 1700),
        ("playout", 1700, 1750),
    ]
    speech, wait, inference = root.children[:3]
    assert [(*times(s), s.attributes[names.HIDDEN]) for s in speech.children] == [
        ("chunk", 500, 600, True),
        ("prefill", 1100, 1150, True),
    ]
    assert [(*times(s), s.attributes[names.HIDDEN]) for s in inference.children] == [
        ("queue", 1500, 1510, False),
        ("prefill", 1510, 1550, False),
        ("decode_first", 1550, 1590, False),
    ]
    assert dict(wait.attributes) == {
        "headstart.wait.owner": "setting",
        "headstart.wait.setting": "silence_duration_ms",
        "headstart.wait.value": 500,
    }


def test_attributes_follow_the_conventions() -> None:
    """GenAI's for the inference, and those of other voice frameworks for the turn."""
    root = trace_of(spoken())
    turn, inference = root.attributes, root.children[2].attributes
    assert turn["turn.number"] == 3
    assert turn["turn.was_interrupted"] is False
    assert turn["turn.user_bot_latency_seconds"] == 0.7
    assert inference["gen_ai.operation.name"] == "realtime_inference"
    assert inference["gen_ai.provider.name"] == "headstart"
    assert inference["gen_ai.request.model"] == "small"
    assert inference["gen_ai.conversation.id"] == "sess_1"
    assert inference["gen_ai.response.id"] == "resp_1"
    assert inference["gen_ai.usage.input_tokens"] == 15
    assert inference["gen_ai.usage.output_tokens"] == 7


def test_nothing_that_was_said_is_in_it() -> None:
    """Even where the record has it."""
    assert "the question" not in repr(trace_of(spoken()))
    assert "the answer" not in repr(trace_of(spoken()))


def test_a_typed_turn_has_no_speech() -> None:
    """From the request on; without a budget its latency is not there rather than 0."""
    stamps = TurnStamps(sent_ns=50 * MS, requested_ns=10 * MS)
    root = trace_of(
        spoken(stamps=stamps, budget=None, chunks=(), voice=None, playout=None, usage=None)
    )
    assert [times(part) for part in root.children] == [("realtime_inference small", 10, 2000)]
    assert names.USER_BOT_LATENCY not in root.attributes


def test_a_failed_turn_names_its_error() -> None:
    """The code, not the message."""
    root = trace_of(spoken(error=("engine_lost", "a message"), reason="failed"))
    assert root.error == root.children[2].error == "engine_lost"
    assert "a message" not in repr(root)


def test_times_never_go_backwards() -> None:
    """Also of stamps that contradict each other, and of a chunk that is done after the endpoint."""
    late = spoken(done_ns=1200 * MS)
    slow = Chunk("s", TurnRef(1), 0, 8000, {"encode": 50.0}, 1200.0, 4, 1)
    late = dataclasses.replace(late, chunks=(TurnChunk(0, ChunkBudget.from_chunk(slow), 4, 1),))
    root = trace_of(late)
    assert all(span.start_ns <= span.end_ns for span in every(root))
    (chunk,) = (s for s in every(root) if s.name == "chunk")
    assert chunk.attributes[names.HIDDEN] is False
    assert root.end_ns >= max(part.end_ns for part in root.children)


def test_spans_are_bounded() -> None:
    """The newest of the engine's."""
    many = tuple(Span("prefill", i * MS, i * MS) for i in range(1501, 1501 + 2 * ENGINE_SPANS_MAX))
    record = spoken()
    root = trace_of(spoken(stamps=dataclasses.replace(record.stamps, spans=many)))
    assert sum(s.name == "prefill" for s in every(root)) == ENGINE_SPANS_MAX
