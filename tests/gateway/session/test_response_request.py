"""What one response asks for itself."""

from __future__ import annotations

import json
from typing import Any

from openai.types.realtime import ResponseCreateEvent

from headstart.gateway.protocol.parse import parse_client_event
from headstart.gateway.protocol.session_config import SessionConfig
from headstart.gateway.session.response import ResponseRequest

CONFIG = SessionConfig("sess", "m", 0, tools=({"type": "function", "name": "f"},))


def asked(**params: Any) -> ResponseRequest:
    event = parse_client_event(json.dumps({"type": "response.create", "response": params}))
    assert isinstance(event, ResponseCreateEvent)
    return ResponseRequest.of(event.response, CONFIG)


def test_what_is_absent_or_null_is_the_sessions() -> None:
    """None in every field."""
    assert ResponseRequest.of(None, CONFIG) == asked() == ResponseRequest()
    assert (
        asked(instructions=None, tools=None, tool_choice=None, metadata=None) == ResponseRequest()
    )


def test_what_is_given_counts_for_this_response() -> None:
    """Each of its fields."""
    found = asked(
        conversation="none",
        instructions="x",
        output_modalities=["text"],
        max_output_tokens=7,
        metadata={"a": "b"},
        tool_choice="required",
    )
    assert found.out_of_band
    assert (found.instructions, found.modality, found.max_output_tokens) == ("x", "text", 7)
    assert found.metadata == {"a": "b"}
    assert found.calling == {"call": "required"}
    assert found.tools is None
