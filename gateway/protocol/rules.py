"""Rules beyond the schema's types: the content an item may hold, and unsupported features.

Each rule names the offending field as the schema does.

"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
from openai.types.realtime import (
    ConversationItem,
    ConversationItemCreateEvent,
    RealtimeConversationItemAssistantMessage,
    RealtimeConversationItemFunctionCall,
    RealtimeConversationItemFunctionCallOutput,
    RealtimeConversationItemSystemMessage,
    RealtimeConversationItemUserMessage,
    RealtimeResponseCreateParams,
    RealtimeSessionCreateRequest,
    ResponseCreateEvent,
    SessionUpdateEvent,
)
from openai.types.realtime.response_item_reference import ResponseItemReference
from pydantic import BaseModel

from headstart.gateway.protocol import errors, limits

MessageItem = (
    RealtimeConversationItemSystemMessage
    | RealtimeConversationItemUserMessage
    | RealtimeConversationItemAssistantMessage
)
FunctionItem = RealtimeConversationItemFunctionCall | RealtimeConversationItemFunctionCallOutput

# The required and the allowed fields of each kind of content, besides `type`.
_REQUIRED = {
    "input_text": "text",
    "input_audio": "audio",
    "input_image": "image_url",
    "output_text": "text",
    "output_audio": "transcript",
}
_OPTIONAL = {
    "input_audio": {"transcript"},
    "input_image": {"detail"},
    "output_audio": {"audio"},  # from a client that restores a conversation; ignored
}
_STANDS_FOR = {"input_audio": "transcript"}  # what may replace the required field
_ROOT = "root"  # as `previous_item_id` it means the start of the conversation


def check(event: BaseModel) -> None:
    """Raises `ProtocolError` if a well-typed event breaks a rule."""
    if isinstance(event, ConversationItemCreateEvent):
        check_item(event.item, "item")
    elif isinstance(event, SessionUpdateEvent):
        if isinstance(event.session, RealtimeSessionCreateRequest):
            _check_session(event.session)
    elif isinstance(event, ResponseCreateEvent) and event.response is not None:
        _check_response(event.response)


def response_input(
    response: RealtimeResponseCreateParams,
) -> list[ConversationItem | ResponseItemReference] | None:
    """`response.input` as `parse` allows it; the library's annotation has no references."""
    return cast("list[ConversationItem | ResponseItemReference] | None", response.input)


def check_item(item: ConversationItem, path: str) -> None:
    """Check a client's item: no MCP, content that fits the role and is complete."""
    if isinstance(item, MessageItem):
        _check_content(item, path)
    elif not isinstance(item, FunctionItem):
        raise errors.unsupported(f"{path}.type", "MCP items are")
    elif isinstance(item, RealtimeConversationItemFunctionCall):
        _check_arguments(item.arguments, f"{path}.arguments")
    if item.id == _ROOT:
        raise errors.invalid_value(f"{path}.id", f"any id but '{_ROOT}'", item.id)


def _check_content(item: MessageItem, path: str) -> None:
    text_chars = 0
    parts: Sequence[Any] = item.content  # each role has its own class of content
    for index, part in enumerate(parts):
        where = f"{path}.content[{index}]"
        if part.type is None:
            raise errors.missing_parameter(f"{where}.type")
        required = _REQUIRED[part.type]
        given = getattr(part, required)
        if given is None and not getattr(part, _STANDS_FOR.get(part.type, required)):
            raise errors.missing_parameter(f"{where}.{required}")
        allowed = {"type", required} | _OPTIONAL.get(part.type, set())
        for name in part.model_fields_set - allowed:
            if getattr(part, name) is not None:
                raise errors.unknown_parameter(f"{where}.{name}")
        text_chars += len(part.text or getattr(part, "transcript", None) or "")
        if text_chars > limits.MAX_STRING_CHARS:
            raise errors.string_too_long(f"{where}.text", limits.MAX_STRING_CHARS, text_chars)


def _check_arguments(arguments: str, path: str) -> None:
    """The model reads the arguments unchanged, inside a JSON object."""
    try:
        given = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise errors.invalid_value(path, "a JSON object, as text", arguments)


def _check_session(session: RealtimeSessionCreateRequest) -> None:
    _check_tools(session.tools, "session.tools")
    _check_choice(session.tool_choice, "session.tool_choice")


def _check_response(response: RealtimeResponseCreateParams) -> None:
    _check_tools(response.tools, "response.tools")
    _check_choice(response.tool_choice, "response.tool_choice")
    if response.conversation not in (None, "auto", "none"):
        raise errors.unsupported_value(
            "response.conversation", response.conversation, ["auto", "none"]
        )
    for index, item in enumerate(response_input(response) or ()):
        if not isinstance(item, ResponseItemReference):
            check_item(item, f"response.input[{index}]")


def _check_tools(tools: Sequence[object] | None, path: str) -> None:
    for index, tool in enumerate(tools or ()):
        if getattr(tool, "type", None) == "mcp":
            raise errors.unsupported(f"{path}[{index}].type", "MCP tools are")
        if getattr(tool, "name", None) is None:
            raise errors.missing_parameter(f"{path}[{index}].name")


def _check_choice(choice: object, path: str) -> None:
    if getattr(choice, "type", None) == "mcp":
        raise errors.unsupported(f"{path}.type", "MCP tools are")
