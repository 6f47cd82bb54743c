"""A conversation's items in the engine: put there, replaced, and taken out as the books change.

`ConversationItem.known` says whether the engine has an item of that name; so nothing stays in what
the model reads that the books have no more, and nothing is named there that is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from headstart.engine import api
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.conversation import ConversationItem, Place


def keep(state: SessionContext, kept: ConversationItem, previous_item_id: str | None) -> None:
    """Put an item into the books, behind what `Conversation.place` named."""
    forget(state, state.conversation.insert(kept, previous_item_id))


def keep_answer(state: SessionContext, kept: ConversationItem, place: Place) -> None:
    """Put an answer's next item into the books."""
    forget(state, state.conversation.insert_answer(kept, place))


def forget(state: SessionContext, items: Iterable[ConversationItem]) -> None:
    """What is in the books no more, the model does not read either."""
    for kept in items:
        if kept.known:
            kept.known = False
            state.tell(api.RemoveItem(state.session_id, kept.item_id))


def amend(state: SessionContext, kept: ConversationItem, item: api.Item | None) -> None:
    """An item in the books is `item` to the model from now on; None: it is nothing."""
    if kept.known and kept.engine == item:
        return
    forget(state, [kept])
    kept.engine = item
    if item is not None and state.engine_keeps:
        kept.known = True
        after = state.conversation.engine_place(kept.item_id)
        state.tell(api.AddItem(state.session_id, item, after))


def said(item_id: str, text: str) -> api.Item | None:
    """What the model reads of an answer."""
    return api.Item(item_id, api.Role.ASSISTANT, (api.Text(text),)) if text else None
