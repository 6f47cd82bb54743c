"""Clients' items and pictures in the engine's terms; what it cannot take is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openai.types.realtime import (
    RealtimeConversationItemAssistantMessage,
    RealtimeConversationItemSystemMessage,
    RealtimeConversationItemUserMessage,
)
from openai.types.realtime.realtime_conversation_item_user_message import (
    Content as UserContent,
)
from openai.types.realtime.response_item_reference import ResponseItemReference

from engine import api
from gateway.conversation import Conversation
from gateway.protocol import errors
from gateway.protocol.ids import IdMaker
from gateway.protocol.images import decode_image, decode_image_url


def input_image(url: str, *, param: str, bare_base64: bool = False) -> api.Image:
    """A picture's pixels. Raises `ProtocolError` naming `param`."""
    picture = decode_image(decode_image_url(url, param=param, bare_base64=bare_base64), param=param)
    return api.Image(picture.width, picture.height, picture.rgb)


def engine_item(item: Any, item_id: str, param: str) -> api.Item:
    """One item as the model will read it. Raises `ProtocolError` for kinds not served yet."""
    if isinstance(item, RealtimeConversationItemUserMessage):
        parts = tuple(
            _user_part(part, f"{param}.content[{i}]") for i, part in enumerate(item.content)
        )
        return api.Item(item_id, api.Role.USER, parts)
    if isinstance(item, RealtimeConversationItemSystemMessage):
        texts = tuple(api.Text(part.text or "") for part in item.content)
        return api.Item(item_id, api.Role.SYSTEM, texts)
    if isinstance(item, RealtimeConversationItemAssistantMessage):
        said = []
        for i, content in enumerate(item.content):
            if content.type == "output_audio":
                raise errors.unsupported(f"{param}.content[{i}].type", "assistant audio items are")
            said.append(api.Text(content.text or ""))
        return api.Item(item_id, api.Role.ASSISTANT, tuple(said))
    raise errors.unsupported(f"{param}.type", f"items of type '{item.type}' are")


def _user_part(part: UserContent, param: str) -> api.Part:
    if part.type == "input_image":
        return input_image(part.image_url or "", param=f"{param}.image_url")
    if part.type == "input_audio":
        # Speech comes through the input audio buffer, where it is heard while it is spoken.
        raise errors.unsupported(f"{param}.type", "audio inside items is")
    return api.Text(part.text or "")


def response_items(given: Sequence[Any], talk: Conversation, ids: IdMaker) -> tuple[api.Item, ...]:
    """The `input` of an out-of-band response; references are looked up in the conversation."""
    found = []
    for i, item in enumerate(given):
        if isinstance(item, ResponseItemReference):
            kept = talk.find(item.id)
            if kept is None or kept.engine is None:
                raise errors.referenced_item_not_found(i, item.id)
            found.append(kept.engine)
        else:
            item_id = getattr(item, "id", None) or ids.item()
            found.append(engine_item(item, item_id, f"response.input[{i}]"))
    return tuple(found)
