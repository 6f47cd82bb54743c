"""What clients get wrong, as one table: code, parameter and sentence to the letter."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.engine import api
from tests.gateway.protocol.test_conformance import TOOL, Scenario, played, spoken_answer
from tests.gateway.session_bench import Json, SessionBench, user_text


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
        item(role="assistant", content=[{"type": "output_audio", "audio": "AAAA"}]),
        "missing_required_parameter",
        "item.content[0].transcript",
        "Missing required parameter",
    ),
    (
        None,
        "conversation.item.create",
        item(role="assistant", content=[{"type": "input_text", "text": "x"}]),
        "invalid_value",
        "item.content[0].type",
        "Invalid value: 'input_text'. Supported values are: 'output_text' and 'output_audio'.",
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
