"""A conversation's items in the engine: added, replaced and removed along with the gateway's items.

`ConversationItem.known` says whether the engine has an item with that id. It keeps both sides
consistent: the model reads no item that the conversation has dropped, and no command names an item
that the engine does not have.

"""

from __future__ import annotations

from collections.abc import Iterable

from headstart.engine import api
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.conversation import ConversationItem, Place


def keep(state: SessionContext, kept: ConversationItem, previous_item_id: str | None) -> None:
    """Insert an item into the conversation, after the item that `Conversation.place` returned."""
    forget(state, state.conversation.insert(kept, previous_item_id))


def keep_answer(state: SessionContext, kept: ConversationItem, place: Place) -> None:
    """Insert a response's next item into the conversation."""
    forget(state, state.conversation.insert_answer(kept, place))


def forget(state: SessionContext, items: Iterable[ConversationItem]) -> None:
    """Remove dropped items from the engine too."""
    for kept in items:
        if kept.known:
            kept.known = False
            state.send_to_engine(api.RemoveItem(state.session_id, kept.item_id))


def amend(state: SessionContext, kept: ConversationItem, item: api.Item | None) -> None:
    """Replace what the model reads for an item with `item`; None removes it from the engine."""
    if kept.known and kept.engine == item:
        return
    forget(state, [kept])
    kept.engine = item
    if item is not None and state.engine_keeps:
        kept.known = True
        after = state.conversation.engine_place(kept.item_id)
        state.send_to_engine(api.AddItem(state.session_id, item, after))


def said(item_id: str, text: str) -> api.Item | None:
    """A response's text as the model reads it; None if it is empty."""
    return api.Item(item_id, api.Role.ASSISTANT, (api.Text(text),)) if text else None
