"""What is built here is held against the library's own union, as the strictest client does."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import BaseModel, TypeAdapter

from headstart.gateway.protocol import errors, items
from headstart.gateway.protocol import events as builders
from headstart.gateway.protocol.events import Events, PartRef
from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.protocol.items import Json, ResponseUsage, StatusDetails
from headstart.gateway.protocol.schema import strict
from headstart.gateway.protocol.session_config import SessionConfig

SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
SESSION = SessionConfig(session_id="sess_1", model="small", expires_at=1).to_wire()
EVENTS = Events(IdMaker.counting())
REF = PartRef("resp_1", "item_2")
USER = items.message("item_1", "user", [items.input_audio(None)])
ANSWER = items.message("item_2", "assistant", [items.output_text("hi")])
BEGUN = items.response(
    "resp_1", status="in_progress", conversation_id="conv_1", output_modalities=["text"]
)
DONE = items.response(
    "resp_1",
    status="completed",
    output=[ANSWER],
    conversation_id="conv_1",
    output_modalities=["text"],
    status_details=StatusDetails("completed"),
    usage=ResponseUsage(input_text=1, output_text=1),
)
FAILED = items.response(
    "resp_1",
    status="failed",
    conversation_id=None,
    output_modalities=["text"],
    status_details=StatusDetails("failed", code="engine_restarted", message="…"),
    metadata={"a": "b"},
)

PLAYOUTS = [
    EVENTS.playout("started", "resp_1"),
    EVENTS.playout("stopped", "resp_1"),
    EVENTS.playout("cleared", "resp_1"),
]
STANDARD = [
    EVENTS.session_created(SESSION),
    EVENTS.session_updated(SESSION),
    EVENTS.error(errors.commit_too_small(20)),
    EVENTS.error(errors.unknown_parameter("session.x").about("mine")),
    EVENTS.speech_started("item_1", 100),
    EVENTS.speech_stopped("item_1", 900),
    EVENTS.committed("item_1", None),
    EVENTS.committed("item_1", "item_0"),
    EVENTS.cleared(),
    EVENTS.item_added(USER, None),
    EVENTS.item_done(USER, "item_0"),
    EVENTS.item_retrieved(USER),
    EVENTS.item_deleted("item_1"),
    EVENTS.item_truncated("item_2", 0, 400),
    EVENTS.transcription_delta("item_1", "hel"),
    EVENTS.transcription_completed("item_1", "hello", 0.8),
    EVENTS.transcription_failed("item_1", "engine_restarted", "…"),
    EVENTS.response_created(BEGUN),
    EVENTS.response_done(DONE),
    EVENTS.response_done(FAILED),
    EVENTS.output_item_added("resp_1", 0, items.message("item_2", "assistant", [], "in_progress")),
    EVENTS.output_item_done("resp_1", 0, ANSWER),
    EVENTS.content_part_added(REF, items.text_part()),
    EVENTS.content_part_done(REF, items.text_part("hi")),
    EVENTS.text_delta(REF, "h"),
    EVENTS.text_done(REF, "hi"),
    EVENTS.timeout_triggered("item_1", 5_000, 11_000),
    EVENTS.audio_transcript_delta(REF, "h"),
    EVENTS.audio_transcript_done(REF, "hi"),
    EVENTS.audio_delta(REF) | {"delta": "AAAA"},  # the transport's part
    EVENTS.audio_done(REF),
    EVENTS.arguments_delta("resp_1", "item_2", 0, "call_1", delta="{"),
    EVENTS.arguments_done("resp_1", "item_2", 0, "call_1", name="look", arguments="{}"),
    *PLAYOUTS,
]

OURS = [
    EVENTS.latency_report(
        turn=3,
        item_id="item_1",
        response_id="resp_1",
        budget={"total_ms": 300.0, "stages_ms": {"network": None, "queue": 1.0}},
        usage={"cached": 5},
    ),
    EVENTS.chunk_report(
        turn=3,
        item_id="item_1",
        start_sample=8000,
        duration_ms=500.0,
        due_ms=500.0,
        stages_ms={"mel": 2.0, "encode": 48.0},
        latency_ms=60.0,
        prefilled_tokens=4,
        rolled_back_tokens=1,
    ),
    EVENTS.hearing(turn=3, item_id="item_1", committed="a", tentative="b", audio_ms=700.0),
    EVENTS.engine_status("restarting", "the engine went away", attempt=1),
    EVENTS.end_of_message(
        turn=3, item_id="item_1", probability=0.5, mark_probability=0.25, audio_ms=700.0
    ),
    EVENTS.interruption("possible", turn=3, item_id="item_1"),
    EVENTS.turn_continued(
        turn=4, item_id="item_3", continued_item_id="item_1", response_id="resp_1"
    ),
    EVENTS.frame_judged(
        "unchanged",
        frame_event_id="mine",
        at_ms=700.0,
        changed=0.01,
        since_kept_ms=1000.0,
        rung="full",
    ),
    EVENTS.pictures_read("resp_1", [("Platform 4", "Trains to Oxford"), (), None]),
    EVENTS.voice_status("ready", "joe", "The voice is ready."),
    EVENTS.session_resumable("token", 30_000),
    EVENTS.session_resumed(SESSION, None, 4),
]


def _model(type_: str) -> type[BaseModel]:
    """The union's member for an event type."""
    union, _ = get_args(RealtimeServerEvent)
    for model in get_args(union):
        if model.model_fields["type"].annotation.__args__[0] == type_:
            return strict(model)
    raise LookupError(type_)


@pytest.mark.parametrize("event", STANDARD, ids=lambda event: event["type"])
def test_standard_events_are_valid_in_the_librarys_union(event: Json) -> None:
    """And are read as the event they are, not as another member that happens to fit."""
    parsed = SERVER_EVENT.validate_json(json.dumps(event))
    assert parsed.type == event["type"]


@pytest.mark.parametrize("event", STANDARD, ids=lambda event: event["type"])
def test_standard_events_hold_no_unknown_key(event: Json) -> None:
    """Strictly; the session has three keys more than the request's type, as on the live service."""
    known = dict(event)
    if "session" in event:
        surplus = ("object", "id", "expires_at")
        known["session"] = {k: v for k, v in event["session"].items() if k not in surplus}
    _model(event["type"]).model_validate(known)


_MAY_BE_NULL = {
    "previous_item_id",
    "transcript",
    "usage",
    "status_details",
    "metadata",
    "conversation_id",
    "tracing",
    "prompt",
    "include",
    "transcription",
    "noise_reduction",
    "idle_timeout_ms",
    "param",
    "event_id",  # in an error only, where all five keys are present
}


def _nulls(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_nulls, value))
    if isinstance(value, dict):
        return {k for k, v in value.items() if v is None}.union(*map(_nulls, value.values()))
    return set()


@pytest.mark.parametrize("event", STANDARD, ids=lambda event: event["type"])
def test_only_keys_that_may_be_null_are(event: Json) -> None:
    """One client turns an event with a null item id, role, name or text into a nameless one."""
    assert _nulls(event) <= _MAY_BE_NULL
    assert event["event_id"]


def test_every_event_has_its_own_id() -> None:
    """No two events of a session share one."""
    ids = [event["event_id"] for event in STANDARD + OURS]
    assert len(set(ids)) == len(ids)


def test_the_tables_hold_every_event_that_is_built() -> None:
    """By the names in the builders' source; ours are also in the protocol's README."""
    built = set(re.findall(r'_event\(\s*"([a-z_.]+)"', Path(builders.__file__).read_text()))
    ours = {name for name in built if name.startswith("gateway.")}
    assert len(ours) >= 10
    assert {event["type"] for event in OURS} == ours
    not_literal = {"error", *(event["type"] for event in PLAYOUTS)}
    assert {event["type"] for event in STANDARD} == (built - ours) | not_literal
    readme = Path(builders.__file__).with_name("README.md").read_text()
    assert [name for name in ours if not re.search(rf"`{re.escape(name)}[` ]", readme)] == []


@pytest.mark.parametrize("event", OURS, ids=lambda event: event["type"])
def test_our_events_are_named_as_ours(event: Json) -> None:
    """A prefix of their own, and JSON without NaN."""
    assert event["type"].startswith("gateway.")
    assert json.loads(json.dumps(event, allow_nan=False)) == event


def test_a_chunks_headroom_is_what_its_duration_leaves() -> None:
    """50 ms of work in 500 ms of audio leave nine tenths."""
    assert OURS[1]["headroom"] == pytest.approx(0.9)


def test_a_part_reference_names_all_four() -> None:
    """Every part event carries all four places."""
    assert PartRef("r", "i", 1, 2).to_wire() == {
        "response_id": "r",
        "item_id": "i",
        "output_index": 1,
        "content_index": 2,
    }
