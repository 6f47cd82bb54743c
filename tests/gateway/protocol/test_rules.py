import json
from typing import Any

import pytest
from openai.types.realtime import ConversationItemCreateEvent, ResponseCreateEvent
from openai.types.realtime.response_item_reference import ResponseItemReference

from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.limits import MAX_STRING_CHARS
from headstart.gateway.protocol.parse import parse_client_event
from headstart.gateway.protocol.rules import response_input


def _refused(event: dict[str, Any]) -> tuple[str | None, str | None]:
    with pytest.raises(ProtocolError) as caught:
        parse_client_event(json.dumps(event))
    return caught.value.code, caught.value.param


def _item(**item: Any) -> dict[str, Any]:
    return {"type": "conversation.item.create", "item": item}


def _message(role: str, *content: dict[str, Any]) -> dict[str, Any]:
    return _item(type="message", role=role, content=list(content))


@pytest.mark.parametrize(
    ("role", "part", "code", "field"),
    [
        ("user", {"type": "input_text"}, "missing_required_parameter", "text"),
        ("user", {"type": "input_text", "text": None}, "missing_required_parameter", "text"),
        ("user", {"type": "input_image"}, "missing_required_parameter", "image_url"),
        ("user", {"type": "input_audio"}, "missing_required_parameter", "audio"),
        ("user", {"text": "hi"}, "missing_required_parameter", "type"),
        ("user", {"type": "text", "text": "hi"}, "invalid_value", "type"),
        ("user", {"type": "output_text", "text": "hi"}, "invalid_value", "type"),
        ("system", {"type": "input_image", "image_url": "x"}, "invalid_value", "type"),
        ("system", {"type": "input_audio"}, "invalid_value", "type"),
        ("assistant", {"type": "input_text", "text": "hi"}, "invalid_value", "type"),
        (
            "assistant",
            {"type": "output_audio", "audio": "AAAA"},
            "missing_required_parameter",
            "transcript",
        ),
        (
            "user",
            {"type": "input_audio", "transcript": ""},
            "missing_required_parameter",
            "audio",
        ),
        (
            "user",
            {"type": "input_text", "text": "hi", "image_url": "x"},
            "unknown_parameter",
            "image_url",
        ),
    ],
)
def test_content_that_does_not_fit_is_named(
    role: str, part: dict[str, Any], code: str, field: str
) -> None:
    """Incomplete, of another role, sound without words, or with another content's field."""
    good = {"type": "output_text" if role == "assistant" else "input_text", "text": "before"}
    assert _refused(_message(role, good, part)) == (code, f"item.content[1].{field}")


@pytest.mark.parametrize(
    ("role", "part"),
    [
        ("system", {"type": "input_text", "text": ""}),
        ("user", {"type": "input_text", "text": "hi", "audio": None, "image_url": None}),
        ("user", {"type": "input_audio", "audio": "AAAA", "transcript": "hi"}),
        ("user", {"type": "input_audio", "transcript": "hi"}),
        ("user", {"type": "input_audio", "audio": "AAAA", "transcript": None}),
        ("assistant", {"type": "output_audio", "transcript": "hi"}),
        ("assistant", {"type": "output_audio", "transcript": "hi", "audio": "AAAA"}),
        ("user", {"type": "input_image", "image_url": "data:…", "detail": "low"}),
        ("assistant", {"type": "output_text", "text": "hi"}),
    ],
)
def test_content_that_fits_passes(role: str, part: dict[str, Any]) -> None:
    """An explicit null is an absent key."""
    event = parse_client_event(json.dumps(_message(role, part)))
    assert isinstance(event, ConversationItemCreateEvent)


def test_an_items_text_is_bounded_as_a_whole() -> None:
    """Many parts of legal length do not add up to an echo that no client could receive."""
    half = {"type": "input_text", "text": "x" * (MAX_STRING_CHARS // 2)}
    assert _refused(_message("user", half, half, half)) == (
        "string_above_max_length",
        "item.content[2].text",
    )


def test_the_reserved_id_is_refused() -> None:
    """An item called "root" could not be told from the head of the conversation."""
    item = _item(type="function_call_output", id="root", call_id="c", output="")
    assert _refused(item) == ("invalid_value", "item.id")


def test_mcp_is_refused_by_name() -> None:
    """As an item and as a tool: accepting what is never carried out would be a lie."""
    approval = _item(type="mcp_approval_response", id="a", approval_request_id="b", approve=True)
    assert _refused(approval) == ("invalid_value", "item.type")
    tools = [{"type": "function", "name": "f"}, {"type": "mcp", "server_label": "s"}]
    update = {"type": "session.update", "session": {"type": "realtime", "tools": tools}}
    assert _refused(update) == ("invalid_value", "session.tools[1].type")
    create = {"type": "response.create", "response": {"tools": tools}}
    assert _refused(create) == ("invalid_value", "response.tools[1].type")


def test_a_tool_choice_of_mcp_is_refused_by_name() -> None:
    """As the tools are."""
    choice = {"type": "mcp", "server_label": "s"}
    update = {"type": "session.update", "session": {"type": "realtime", "tool_choice": choice}}
    assert _refused(update) == ("invalid_value", "session.tool_choice.type")
    create = {"type": "response.create", "response": {"tool_choice": choice}}
    assert _refused(create) == ("invalid_value", "response.tool_choice.type")


def test_a_tool_has_a_name() -> None:
    """The library's type lets it be absent; nobody could call it."""
    update = {"type": "session.update", "session": {"type": "realtime", "tools": [{}]}}
    assert _refused(update) == ("missing_required_parameter", "session.tools[0].name")


def test_a_response_speaks_the_same_rules() -> None:
    """Its input and its conversation are held to them."""
    broken = [{"type": "message", "role": "user", "content": [{"type": "input_text"}]}]
    assert _refused({"type": "response.create", "response": {"input": broken}}) == (
        "missing_required_parameter",
        "response.input[0].content[0].text",
    )
    assert _refused({"type": "response.create", "response": {"conversation": "conv_1"}}) == (
        "invalid_value",
        "response.conversation",
    )


def test_a_responses_input_may_refer_to_items() -> None:
    """`response_input` gives items and references as they were sent; absent stays None."""
    reference = {"type": "item_reference", "id": "item_1"}
    event = parse_client_event(
        json.dumps({"type": "response.create", "response": {"input": [reference]}})
    )
    assert isinstance(event, ResponseCreateEvent)
    assert event.response is not None
    items = response_input(event.response)
    assert items is not None
    assert isinstance(items[0], ResponseItemReference)
    bare = parse_client_event('{"type":"response.create","response":{}}')
    assert isinstance(bare, ResponseCreateEvent)
    assert bare.response is not None
    assert response_input(bare.response) is None
