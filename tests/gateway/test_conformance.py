"""The Realtime API as one table: each client event and its replies, each server event, each error.

Every event that a scenario makes the core send is read by the library's own closed union, as the
strictest client does.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from engine import api
from gateway.protocol.parse import CLIENT_EVENT_TYPES
from tests.gateway.session_bench import Json, SessionBench, clip_pcm, silence_pcm
from tests.gateway.test_session import user_text

SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
TRANSCRIBED = {"input": {"transcription": {"model": "whisper-1"}}}
BY_HAND = {"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}}
SECOND = base64.b64encode(bytes(48_000)).decode()


def said_by_hand(bench: SessionBench) -> None:
    """Push-to-talk: append, commit, and the words."""
    bench.update(audio=BY_HAND)
    bench.client("input_audio_buffer.append", audio=SECOND)
    bench.client("input_audio_buffer.commit")
    ended = bench.commands(api.EndSpeech)[-1]
    item_id = bench.last("input_audio_buffer.committed")["item_id"]
    bench.engine(api.Heard("sess_test", ended.ref, item_id, "hello there", 3))


def heard_by_vad(bench: SessionBench) -> None:
    """Speech under server VAD, and its answer."""
    bench.update(audio=TRANSCRIBED)
    bench.hear(clip_pcm("capital.wav") + silence_pcm(1_000))
    ended = bench.commands(api.EndSpeech)[-1]
    item_id = bench.last("input_audio_buffer.committed")["item_id"]
    bench.engine(api.Heard("sess_test", ended.ref, item_id, "the capital of France", 3))
    bench.answer("Paris.")
    bench.say_all()


def not_understood(bench: SessionBench) -> None:
    bench.update(audio=TRANSCRIBED)
    bench.hear(clip_pcm("capital.wav")[: 48 * 1_500])
    bench.engine_lost()


def text_answer(bench: SessionBench) -> None:
    bench.client("conversation.item.create", item=user_text("Hi", id="u1"))
    bench.client("response.create", response={"output_modalities": ["text"]})
    bench.answer("Hello", " you.")


def spoken_answer(bench: SessionBench) -> None:
    bench.client("response.create")
    bench.answer("It is big.")
    bench.say_all()


def function_call(bench: SessionBench) -> None:
    bench.update(tools=[TOOL])
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.engine(api.Call("sess_test", generation, 0, "weather", '{"city":', False))
    bench.engine(api.Call("sess_test", generation, 0, "weather", ' "Rome"}', True))
    bench.finish(generation, "")
    call_id = bench.last("response.function_call_arguments.done")["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "sunny"}
    bench.client("conversation.item.create", item=output)


def cancelled(bench: SessionBench) -> None:
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, "It is", 0))
    bench.client("response.cancel")
    bench.finish(generation, "It is", api.FinishReason.CANCELLED)


def out_of_band(bench: SessionBench) -> None:
    bench.client("conversation.item.create", item=user_text("Hi", id="u1"))
    given = [{"type": "item_reference", "id": "u1"}, user_text("Classify")]
    bench.client(
        "response.create",
        response={"conversation": "none", "metadata": {"k": "v"}, "input": given},
    )
    bench.answer("spam")
    bench.say_all()


def items_read_and_deleted(bench: SessionBench) -> None:
    text_answer(bench)
    bench.client("conversation.item.retrieve", item_id="u1")
    bench.client("conversation.item.delete", item_id="u1")


def truncated_twice(bench: SessionBench) -> None:
    spoken_answer(bench)
    item_id = bench.last("response.done")["response"]["output"][0]["id"]
    for _ in range(2):
        bench.client(
            "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=500
        )
    bench.client("conversation.item.retrieve", item_id=item_id)


def played_by_the_server(bench: SessionBench) -> None:
    spoken_answer(bench)
    bench.playout("started", 480)
    bench.client("output_audio_buffer.clear")
    bench.cleared(12_000)
    spoken_answer(bench)
    bench.playout("stopped", 36_000)


def appended_by_hand(bench: SessionBench) -> None:
    bench.update(audio=BY_HAND)
    bench.client("input_audio_buffer.append", audio=SECOND)


def buffer_cleared(bench: SessionBench) -> None:
    appended_by_hand(bench)
    bench.client("input_audio_buffer.clear")


def own_input_in_the_conversation(bench: SessionBench) -> None:
    bench.client("response.create", response={"input": [user_text("Only this")]})
    bench.answer("Yes.")
    bench.say_all()


def a_mistake(bench: SessionBench) -> None:
    bench.client("response.cancel", event_id="mine")


Scenario = Callable[[SessionBench], None]
SCENARIOS: list[Scenario] = [
    said_by_hand,
    heard_by_vad,
    not_understood,
    text_answer,
    spoken_answer,
    function_call,
    cancelled,
    out_of_band,
    items_read_and_deleted,
    truncated_twice,
    played_by_the_server,
    buffer_cleared,
    own_input_in_the_conversation,
    a_mistake,
]

TIER_1 = [
    "error",
    "session.created",
    "session.updated",
    "conversation.item.added",
    "conversation.item.done",
    "conversation.item.retrieved",
    "conversation.item.truncated",
    "conversation.item.deleted",
    "conversation.item.input_audio_transcription.delta",
    "conversation.item.input_audio_transcription.completed",
    "conversation.item.input_audio_transcription.failed",
    "input_audio_buffer.committed",
    "input_audio_buffer.cleared",
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "output_audio_buffer.started",
    "output_audio_buffer.stopped",
    "output_audio_buffer.cleared",
    "response.created",
    "response.done",
    "response.output_item.added",
    "response.output_item.done",
    "response.content_part.added",
    "response.content_part.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.output_audio_transcript.delta",
    "response.output_audio_transcript.done",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
]


def played(scenario: Scenario) -> SessionBench:
    bench = SessionBench(speaks=True)
    scenario(bench)
    return bench


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_every_event_is_one_of_the_apis(scenario: Scenario) -> None:
    """As the library's closed union has it, and no error but the one that was asked for."""
    bench = played(scenario)
    for event in bench.sent:
        parsed = SERVER_EVENT.validate_json(json.dumps(event))
        assert parsed.type == event["type"]
        assert event["event_id"]
    errors = 1 if scenario is a_mistake else 0
    assert len(bench.of("error")) == errors, bench.of("error")


def test_every_tier_1_event_is_sent() -> None:
    """By one scenario or another."""
    seen = {event["type"] for scenario in SCENARIOS for event in played(scenario).sent}
    assert set(TIER_1) - seen == set()
    assert seen - set(TIER_1) == set()


# Each client event: what comes before it, the event, and the replies to it, in order.
REPLIES: list[tuple[Scenario | None, str, Json, list[str]]] = [
    (None, "session.update", {"session": {"type": "realtime"}}, ["session.updated"]),
    (None, "input_audio_buffer.append", {"audio": SECOND}, []),
    (buffer_cleared, "input_audio_buffer.clear", {}, ["input_audio_buffer.cleared"]),
    (
        appended_by_hand,
        "input_audio_buffer.commit",
        {},
        ["input_audio_buffer.committed", "conversation.item.added", "conversation.item.done"],
    ),
    (None, "output_audio_buffer.clear", {}, []),
    (
        None,
        "conversation.item.create",
        {"item": user_text("Hi")},
        ["conversation.item.added", "conversation.item.done"],
    ),
    (
        text_answer,
        "conversation.item.retrieve",
        {"item_id": "u1"},
        ["conversation.item.retrieved"],
    ),
    (text_answer, "conversation.item.delete", {"item_id": "u1"}, ["conversation.item.deleted"]),
    (None, "response.create", {}, ["response.created"]),
    (None, "response.create", {"response": {"conversation": "none"}}, ["response.created"]),
    (None, "input_image_buffer.append", {"image": ""}, ["error"]),
]


@pytest.mark.parametrize(("before", "name", "fields", "replies"), REPLIES)
def test_a_client_event_has_its_replies(
    before: Scenario | None, name: str, fields: Json, replies: list[str]
) -> None:
    """The types of what is sent because of it; cancel and truncate are scenarios of their own."""
    bench = SessionBench(speaks=True)
    if before is not None:
        before(bench)
    bench.clear()
    bench.client(name, **fields)
    assert bench.types() == replies


def test_the_tables_name_every_client_event() -> None:
    """All eleven, and the one of ours."""
    scenarios = {"conversation.item.truncate", "response.cancel"}
    assert {name for _, name, _, _ in REPLIES} | scenarios == set(CLIENT_EVENT_TYPES)


def created(bench: SessionBench) -> None:
    bench.client("response.create")


def has_item(bench: SessionBench) -> None:
    bench.client("conversation.item.create", item=user_text("Hi", id="u1"))


def cut(item_id: str, audio_end_ms: int = 0) -> Json:
    return {"item_id": item_id, "content_index": 0, "audio_end_ms": audio_end_ms}


def item(**fields: Any) -> Json:
    return {"item": {"type": "message", "role": "user", **fields}}


def image(url: str) -> Json:
    return item(content=[{"type": "input_image", "image_url": url}])


def session(**fields: Any) -> Json:
    return {"session": {"type": "realtime", **fields}}


def detection(**fields: Any) -> Json:
    return session(audio={"input": {"turn_detection": {"type": "server_vad", **fields}}})


EXISTS = "Error adding item: an item with id 'u1' already exists."
ACTIVE = "Conversation already has an active response in progress: resp_"
GONE = "Error {} item: the item with id 'no' does not exist."

# Before, the event, and the error's code, param and the beginning of its message.
ERRORS: list[tuple[Scenario | None, str, Json, str | None, str | None, str]] = [
    (None, "nope", {}, "invalid_value", "type", "Invalid value: 'nope'. Supported values are: 's"),
    (None, "response.cancel", {"x": 1}, "unknown_parameter", "x", "Unknown parameter: 'x'."),
    (
        None,
        "session.update",
        session(tools=[TOOL, TOOL, TOOL | {"meta": 1}]),
        "unknown_parameter",
        "session.tools[2].meta",
        "Unknown parameter: 'session.tools[2].meta'.",
    ),
    (
        None,
        "session.update",
        {"session": {}},
        "missing_required_parameter",
        "session.type",
        "Missing required parameter: 'session.type'.",
    ),
    (
        None,
        "conversation.item.create",
        item(content=[{"type": "input_text"}]),
        "missing_required_parameter",
        "item.content[0].text",
        "Missing required parameter",
    ),
    (
        None,
        "session.update",
        detection(threshold=1.5),
        "invalid_value",
        "session.audio.input.turn_detection.threshold",
        "Invalid value",
    ),
    (
        None,
        "session.update",
        session(audio={"output": {"speed": 9}}),
        "invalid_value",
        "session.audio.output.speed",
        "Invalid value",
    ),
    (
        None,
        "session.update",
        session(output_modalities=["text", "audio"]),
        "invalid_value",
        "session.output_modalities",
        "Invalid",
    ),
    (
        None,
        "session.update",
        session(max_output_tokens=-5),
        "invalid_value",
        "session.max_output_tokens",
        "Invalid value",
    ),
    (
        None,
        "conversation.item.create",
        {"item": {"type": "function_call_output", "call_id": "x" * 438, "output": ""}},
        "string_above_max_length",
        "item.call_id",
        "Invalid 'item.call_id': string too long. Expected a string with maximum length 32, but got"
        " a string with length 438",
    ),
    (
        None,
        "input_audio_buffer.append",
        {"audio": "%"},
        "invalid_value",
        "audio",
        "Invalid 'audio'. Expected base64-encoded audio bytes (mono PCM16 at 24kHz) but got an "
        "invalid value.",
    ),
    (
        None,
        "input_audio_buffer.append",
        {"audio": ""},
        "invalid_value",
        "audio",
        "Invalid 'audio'. Expected base64-encoded audio bytes (mono PCM16 at 24kHz) but got empty",
    ),
    (
        None,
        "input_audio_buffer.commit",
        {},
        "input_audio_buffer_commit_empty",
        None,
        "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, "
        "but buffer only has 0.00ms of audio.",
    ),
    (
        has_item,
        "conversation.item.create",
        {"item": user_text("Hi", id="u1")},
        "item_create_duplicate_item_id",
        None,
        EXISTS,
    ),
    (
        None,
        "conversation.item.create",
        {"item": user_text("Hi"), "previous_item_id": "no"},
        "item_create_invalid_item_id",
        "previous_item_id",
        "Error adding item",
    ),
    (
        None,
        "conversation.item.retrieve",
        {"item_id": "no"},
        "item_retrieve_invalid_item_id",
        "item_id",
        GONE.format("retrieving"),
    ),
    (
        None,
        "conversation.item.delete",
        {"item_id": "no"},
        "item_delete_invalid_item_id",
        None,
        GONE.format("deleting"),
    ),
    (
        None,
        "conversation.item.truncate",
        cut("no"),
        "item_truncate_invalid_item_id",
        None,
        "Error truncating item",
    ),
    (
        has_item,
        "conversation.item.truncate",
        cut("u1"),
        None,
        None,
        "Only model output audio messages can be truncated",
    ),
    (
        None,
        "conversation.item.create",
        item(role="assistant", content=[{"type": "output_audio", "transcript": "x"}]),
        "invalid_value",
        "item.content[0].type",
        "Invalid value",
    ),
    (
        None,
        "conversation.item.create",
        image("http://x/y.png"),
        "invalid_value",
        "item.content[0].image_url",
        "Invalid 'item.content[0].image_url'.",
    ),
    (
        None,
        "conversation.item.create",
        image("data:image/png;base64,AAAA"),
        "invalid_value",
        "item.content[0].image_url",
        "Invalid 'item.content[0].image_url'.",
    ),
    (
        None,
        "conversation.item.create",
        {"item": {"type": "function_call_output", "call_id": "no", "output": ""}},
        "invalid_tool_call_id",
        "item.call_id",
        "Error adding item",
    ),
    (created, "response.create", {}, "conversation_already_has_active_response", None, ACTIVE),
    (
        None,
        "response.cancel",
        {},
        "response_cancel_not_active",
        None,
        "Cancellation failed: no active response found",
    ),
    (
        spoken_answer,
        "session.update",
        session(audio={"output": {"voice": "other"}}),
        "cannot_update_voice",
        None,
        "Cannot update a conversation's voice if assistant audio is present.",
    ),
    (
        None,
        "session.update",
        session(instructions="é" * 200_000),
        "invalid_event",
        None,
        "Invalid event: too large.",
    ),
]


@pytest.mark.parametrize(
    ("before", "name", "fields", "code", "param", "message"),
    ERRORS,
    ids=[f"{row[1]}-{row[3]}-{i}" for i, row in enumerate(ERRORS)],
)
def test_a_mistake_has_its_error_to_the_letter(
    before: Scenario | None,
    name: str,
    fields: Json,
    code: str | None,
    param: str | None,
    message: str,
) -> None:
    """All five keys, the client's own event_id, and nothing changed: no reply but the error, no
    command to the engine, the same session."""
    bench = SessionBench(speaks=True)
    if before is not None:
        before(bench)
    bench.clear()
    described = bench.session.describe()
    bench.client(name, event_id="mine", **fields)
    assert bench.types() == ["error"]
    error = bench.error()
    assert (error["code"], error["param"], error["event_id"]) == (code, param, "mine")
    assert error["message"].startswith(message)
    assert error["type"] == "invalid_request_error"
    assert bench.commands(api.Cancel) == bench.commands(api.Respond) == []
    assert bench.session.describe() == described


def test_a_cut_beyond_the_end_says_how_long_it_is() -> None:
    """What a client rounds up is taken; far beyond the end is an error."""
    bench = played(spoken_answer)
    item_id = bench.last("response.done")["response"]["output"][0]["id"]
    bench.client("conversation.item.truncate", **cut(item_id, 1_001))
    assert bench.last("conversation.item.truncated")["item_id"] == item_id
    bench.client("conversation.item.truncate", **cut(item_id, 57_340))
    assert bench.error()["message"] == "Audio content of 1000ms is already shorter than 57340ms"


def test_metadata_and_conversation_are_echoed() -> None:
    """By metadata one client finds its response; out of band there is no conversation's id."""
    bench = played(out_of_band)
    for name in ("response.created", "response.done"):
        response = bench.last(name)["response"]
        assert response["metadata"] == {"k": "v"}
        assert response["conversation_id"] is None
    aside = bench.respond_command().items
    assert aside is not None
    assert [part for each in aside for part in each.parts] == [
        api.Text("Hi"),
        api.Text("Classify"),
    ]


def test_an_answer_to_its_own_input_joins_the_conversation() -> None:
    """The engine answers from the input alone, and is told the answer as an item afterwards."""
    bench = played(own_input_in_the_conversation)
    assert bench.respond_command().items is not None
    added = bench.commands(api.AddItem)[-1].item
    assert (added.role, added.parts) == ("assistant", (api.Text("Yes."),))
    assert bench.last("response.done")["response"]["conversation_id"] is not None
