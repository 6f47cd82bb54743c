import json
from typing import Any

import pytest
from openai.types.realtime import (
    ConversationItemCreateEvent,
    ConversationItemDone,
    RealtimeResponse,
    RealtimeResponseUsage,
)

from headstart.gateway.protocol import items
from headstart.gateway.protocol.items import ResponseUsage, StatusDetails
from headstart.gateway.protocol.parse import parse_client_event
from headstart.gateway.protocol.schema import strict


def _echo(item: dict[str, Any]) -> dict[str, Any]:
    event = parse_client_event(json.dumps({"type": "conversation.item.create", "item": item}))
    assert isinstance(event, ConversationItemCreateEvent)
    return items.client_item("item_9", event.item)


def test_an_echoed_item_gets_its_id_and_loses_its_nulls() -> None:
    """The client's own fields stay as they were."""
    echo = _echo(
        {
            "type": "message",
            "role": "user",
            "id": None,
            "content": [{"type": "input_text", "text": "hi", "audio": None}],
        }
    )
    assert echo == {
        "id": "item_9",
        "object": "realtime.item",
        "status": "completed",
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "hi"}],
    }


def test_an_echoed_item_leaves_its_bulk_behind() -> None:
    """Audio never comes back, a picture only while it fits the smallest transport."""
    small, large = "x" * items.MAX_ECHOED_IMAGE_CHARS, "x" * (items.MAX_ECHOED_IMAGE_CHARS + 1)
    echo = _echo(
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_audio", "audio": "AAAA", "transcript": "hi"},
                {"type": "input_image", "image_url": small},
                {"type": "input_image", "image_url": large, "detail": "low"},
            ],
        }
    )
    assert echo["content"] == [
        {"type": "input_audio", "transcript": "hi"},
        {"type": "input_image", "image_url": small},
        {"type": "input_image", "detail": "low"},
    ]


def test_function_items_are_echoed() -> None:
    """With the call id by which the client's books are kept."""
    echo = _echo({"type": "function_call_output", "call_id": "c", "output": "sunny", "id": "mine"})
    assert (echo["id"], echo["call_id"], echo["output"]) == ("item_9", "c", "sunny")


@pytest.mark.parametrize(
    ("role", "content"),
    [
        ("system", [items.input_text("hi")]),
        ("user", [items.input_audio(None)]),
        ("user", [items.input_audio("hi"), items.input_image("data:…", "low")]),
        ("assistant", [items.output_text("hi")]),
        ("assistant", []),
    ],
)
def test_built_items_are_strictly_valid(role: items.Role, content: list[items.Json]) -> None:
    """Every content builder, in a message of its role."""
    item = items.message("item_1", role, content, "in_progress")
    strict(ConversationItemDone).model_validate(
        {"type": "conversation.item.done", "event_id": "e", "item": item}
    )
    assert item["status"] == "in_progress"


def test_an_unknown_transcript_is_null_and_an_unset_detail_is_absent() -> None:
    """Null where the live service has it, and nowhere else."""
    assert items.input_audio(None) == {"type": "input_audio", "transcript": None}
    assert items.input_image("u") == {"type": "input_image", "image_url": "u"}
    assert items.text_part() == {"type": "text", "text": ""}


def test_usage_adds_up() -> None:
    """The totals are the sums of their parts."""
    wire = ResponseUsage(
        input_text=3, input_audio=5, input_image=7, cached=11, output_text=13, output_audio=17
    ).to_wire()
    strict(RealtimeResponseUsage).model_validate(wire)
    assert (wire["input_tokens"], wire["output_tokens"], wire["total_tokens"]) == (15, 30, 45)
    assert wire["input_token_details"]["cached_tokens"] == 11


@pytest.mark.parametrize(
    ("details", "wire"),
    [
        (StatusDetails("completed"), {"type": "completed"}),
        (
            StatusDetails("cancelled", reason="turn_detected"),
            {"type": "cancelled", "reason": "turn_detected"},
        ),
        (
            StatusDetails("failed", code="engine_restarted", message="…"),
            {
                "type": "failed",
                "error": {"type": "server_error", "code": "engine_restarted", "message": "…"},
            },
        ),
    ],
)
def test_status_details_hold_only_what_is_known(
    details: StatusDetails, wire: dict[str, Any]
) -> None:
    """No null stands for an absent reason or error."""
    assert details.to_wire() == wire


def test_a_response_is_strictly_valid_in_both_its_states() -> None:
    """In progress, usage and details are null; done, it has all of them."""
    began = items.response(
        "resp_1",
        status="in_progress",
        conversation_id="conv_1",
        output_modalities=["text"],
        metadata={"client_event_id": "x"},
    )
    strict(RealtimeResponse).model_validate(began)
    assert (began["usage"], began["status_details"], began["output"]) == (None, None, [])
    assert began["metadata"] == {"client_event_id": "x"}
    assert "audio" not in began
    done = items.response(
        "resp_1",
        status="incomplete",
        output=[items.message("item_1", "assistant", [items.output_text("hi")], "incomplete")],
        conversation_id=None,
        output_modalities=["audio"],
        max_output_tokens=5,
        audio={"output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "marin"}},
        status_details=StatusDetails("incomplete", reason="max_output_tokens"),
        usage=ResponseUsage(input_text=1, output_text=5),
    )
    strict(RealtimeResponse).model_validate(done)
    assert (done["conversation_id"], done["metadata"]) == (None, None)
