"""Clients' items and pictures in the engine's terms; what it cannot take is refused by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from openai.types.realtime import (
    RealtimeConversationItemAssistantMessage,
    RealtimeConversationItemFunctionCall,
    RealtimeConversationItemFunctionCallOutput,
    RealtimeConversationItemSystemMessage,
    RealtimeConversationItemUserMessage,
)
from openai.types.realtime.realtime_conversation_item_user_message import (
    Content as UserContent,
)
from openai.types.realtime.response_item_reference import ResponseItemReference

from engine import api
from gateway.conversation import Conversation
from gateway.media.pictures import Encoded
from gateway.protocol import errors
from gateway.protocol.ids import IdMaker
from gateway.sounds_in import sound_param

Media = Mapping[str, api.Image | api.Sound]
"""Decoded pictures, and sound on its way to the engine, by the name that their field has in errors
(`Encoded.param`, `Clip.param`)."""


def pictures_of(given: Sequence[tuple[Any, str]]) -> list[Encoded]:
    """The pictures in items, each given with its name in errors."""
    return [
        Encoded(part.image_url or "", _image_param(param, i))
        for item, param in given
        if isinstance(item, RealtimeConversationItemUserMessage)
        for i, part in enumerate(item.content)
        if part.type == "input_image"
    ]


def _image_param(param: str, part: int) -> str:
    return f"{param}.content[{part}].image_url"


def engine_item(item: Any, item_id: str, param: str, media: Media) -> api.Item:
    """One item as the model will read it, with its `media`. Raises `ProtocolError` for kinds not
    served."""
    if isinstance(item, RealtimeConversationItemUserMessage):
        parts = tuple(_user_part(part, param, i, media) for i, part in enumerate(item.content))
        return api.Item(item_id, api.Role.USER, parts)
    if isinstance(item, RealtimeConversationItemSystemMessage):
        texts = tuple(api.Text(part.text or "") for part in item.content)
        return api.Item(item_id, api.Role.SYSTEM, texts)
    if isinstance(item, RealtimeConversationItemAssistantMessage):
        said = tuple(api.Text(part.text or part.transcript or "") for part in item.content)
        return api.Item(item_id, api.Role.ASSISTANT, said)
    if isinstance(item, RealtimeConversationItemFunctionCall):
        return api.Item(item_id, api.Role.ASSISTANT, (api.ToolCall(item.name, item.arguments),))
    if isinstance(item, RealtimeConversationItemFunctionCallOutput):
        return api.Item(item_id, api.Role.USER, (api.ToolResult(item.output),))
    raise errors.unsupported(f"{param}.type", f"items of type '{item.type}' are")


def _user_part(part: UserContent, param: str, number: int, media: Media) -> api.Part:
    if part.type == "input_image":
        return media[_image_param(param, number)]
    if part.type == "input_audio":
        # What was heard before is taken at its word.
        sound = media.get(sound_param(param, number))
        return api.Text(part.transcript or "") if sound is None else sound
    return api.Text(part.text or "")


def response_items(
    given: Sequence[Any], talk: Conversation, ids: IdMaker, media: Media
) -> tuple[api.Item, ...]:
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
            found.append(engine_item(item, item_id, f"response.input[{i}]", media))
    return tuple(found)
