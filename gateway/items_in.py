"""Items that clients create and delete: into the books, to the engine, and echoed."""

from __future__ import annotations

import msgspec
from openai.types.realtime import (
    ConversationItemCreateEvent,
    RealtimeConversationItemFunctionCall,
    RealtimeConversationItemFunctionCallOutput,
)

from engine import api
from gateway.conversation import Kept
from gateway.incoming import Media, engine_item
from gateway.protocol import errors, items
from gateway.state import SessionState


def place_item(
    state: SessionState, event: ConversationItemCreateEvent, media: Media
) -> api.AddItem:
    """A client's new item, its pictures decoded, and what the engine is to be told once its sound
    has been. Raises `ProtocolError`."""
    item_id = event.item.id or state.ids.item()
    previous = state.talk.place(item_id, event.previous_item_id)
    item = event.item
    if isinstance(item, RealtimeConversationItemFunctionCallOutput) and not state.talk.has_call(
        item.call_id
    ):
        raise errors.unknown_tool_call(item.call_id)
    for_engine = engine_item(item, item_id, "item", media)
    wire = items.client_item(item_id, item)
    if isinstance(item, RealtimeConversationItemFunctionCall):
        wire.setdefault("call_id", state.ids.call())
    state.talk.insert(Kept(wire, _without_sound(for_engine)), previous)
    state.send(state.events.item_added(wire, previous))
    state.send(state.events.item_done(wire, previous))
    after = None if event.previous_item_id is None else (previous or "root")
    return api.AddItem(state.session_id, for_engine, after)


def _without_sound(item: api.Item) -> api.Item:
    """What a restarted engine can be told of it, until its words are known."""
    parts = (api.Text("") if isinstance(part, api.Sound) else part for part in item.parts)
    return msgspec.structs.replace(item, parts=tuple(parts))


def delete_item(state: SessionState, item_id: str) -> None:
    """Forget an item. Raises `ProtocolError`."""
    kept = state.talk.remove(item_id)
    if kept.engine is not None:
        state.tell(api.RemoveItem(state.session_id, item_id))
    state.send(state.events.item_deleted(item_id))
