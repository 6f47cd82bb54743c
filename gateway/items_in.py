"""Items that clients create and delete: into the books, to the engine, and echoed."""

from __future__ import annotations

import msgspec
from openai.types.realtime import (
    ConversationItemCreateEvent,
    RealtimeConversationItemFunctionCall,
    RealtimeConversationItemFunctionCallOutput,
)

from engine import api
from gateway.answers import Answers
from gateway.conversation import Kept
from gateway.engine_items import forget, keep
from gateway.incoming import Media, engine_item
from gateway.protocol import errors, items
from gateway.state import SessionState


def place_item(
    state: SessionState, event: ConversationItemCreateEvent, media: Media
) -> api.AddItem:
    """A client's new item, its pictures decoded, and what the engine is to be told of it once its
    sound has been. Raises `ProtocolError`."""
    item_id = event.item.id or state.ids.item()
    previous = state.talk.place(item_id, event.previous_item_id)
    item = event.item
    if isinstance(item, RealtimeConversationItemFunctionCallOutput):
        if not state.talk.has_call(item.call_id):
            raise errors.unknown_tool_call(item.call_id)
        if state.talk.has_output(item.call_id):
            raise errors.answered_tool_call(item.call_id)
    for_engine = engine_item(item, item_id, "item", media)
    wire = items.client_item(item_id, item)
    if isinstance(item, RealtimeConversationItemFunctionCall):
        wire.setdefault("call_id", state.ids.call())
    kept = Kept(wire, _without_sound(for_engine), known=state.engine_keeps)
    keep(state, kept, previous)
    state.send(state.events.item_added(wire, previous))
    state.send(state.events.item_done(wire, previous))
    return api.AddItem(state.session_id, for_engine, state.talk.engine_place(item_id))


def _without_sound(item: api.Item) -> api.Item:
    """What a restarted engine can be told of it, until its words are known."""
    parts = (api.Text("") if isinstance(part, api.Sound) else part for part in item.parts)
    return msgspec.structs.replace(item, parts=tuple(parts))


def delete_item(state: SessionState, answers: Answers, item_id: str) -> None:
    """Forget an item. An answer that is still growing in it ends: there is nothing left that it
    could be. Raises `ProtocolError`."""
    kept = state.talk.remove(item_id)
    state.send(state.events.item_deleted(item_id))
    if not answers.give_up(item_id):
        forget(state, [kept])


def item_failed(state: SessionState, event: api.Failed) -> bool:
    """Whether a failed command was about an item, and the client need not be told: an item that
    was to be removed is gone. One that was not added can be deleted all the same."""
    kept = state.talk.find(event.ref_id)
    if event.about == "add_item" and kept is not None:
        kept.known, kept.engine = False, None
    return event.about == "remove_item" and event.code == "unknown_item"
