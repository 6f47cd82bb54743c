"""No frame is larger than clients take."""

from __future__ import annotations

import json

import pytest

from headstart.gateway.protocol import frames
from headstart.gateway.protocol.events import Events
from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.protocol.items import Json

EVENTS = Events(IdMaker.counting())


def item(parts: int, text: str) -> Json:
    content = [{"type": "input_text", "text": text}] * parts
    return {"id": "i", "type": "message", "role": "user", "content": content}


def test_what_fits_goes_as_it_is() -> None:
    """Nothing is touched under the limit."""
    event = EVENTS.item_added(item(3, "é" * 1000), None)
    assert json.loads(frames.encode(event)) == event


@pytest.mark.parametrize("limit", [frames.FRAME_BYTES_MAX, frames.CHANNEL_BYTES_MAX])
@pytest.mark.parametrize(("parts", "text"), [(1, "𝄞" * 300_000), (1000, "\u0001" * 5_000)])
def test_an_items_echo_is_shortened(limit: int, parts: int, text: str) -> None:
    """The event keeps its type, ids and parts; its texts end in an ellipsis."""
    event = EVENTS.item_added(item(parts, text), "before")
    sent = frames.encode(event, limit)
    assert len(sent) <= limit
    echo = json.loads(sent)
    assert echo["type"] == "conversation.item.added"
    assert (echo["previous_item_id"], echo["item"]["id"]) == ("before", "i")
    assert len(echo["item"]["content"]) == parts
    assert echo["item"]["content"][0]["text"].endswith("…")
    assert event["item"]["content"][0]["text"] == text


def test_any_other_event_becomes_an_error() -> None:
    """It says which event was left out."""
    event = EVENTS.session_updated({"instructions": "x" * 300_000})
    sent = frames.encode(event, frames.CHANNEL_BYTES_MAX)
    error = json.loads(sent)["error"]
    assert error["code"] == "event_too_large"
    assert "session.updated" in error["message"]
