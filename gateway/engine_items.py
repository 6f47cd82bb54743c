"""A conversation's items in the engine: put there, replaced, and taken out as the books change.

`Kept.known` says whether the engine has an item of that name; so nothing stays in what the model
reads that the books have no more, and nothing is named there that is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine import api
from gateway.conversation import Kept, Place
from gateway.state import SessionState


def keep(state: SessionState, kept: Kept, previous_item_id: str | None) -> None:
    """Put an item into the books, behind what `Conversation.place` named."""
    forget(state, state.talk.insert(kept, previous_item_id))


def keep_answer(state: SessionState, kept: Kept, place: Place) -> None:
    """Put an answer's next item into the books."""
    forget(state, state.talk.insert_answer(kept, place))


def forget(state: SessionState, items: Iterable[Kept]) -> None:
    """What is in the books no more, the model does not read either."""
    for kept in items:
        if kept.known:
            kept.known = False
            state.tell(api.RemoveItem(state.session_id, kept.item_id))


def amend(state: SessionState, kept: Kept, item: api.Item | None) -> None:
    """An item in the books is `item` to the model from now on; None: it is nothing."""
    if kept.known and kept.engine == item:
        return
    forget(state, [kept])
    kept.engine = item
    if item is not None and state.engine_keeps:
        kept.known = True
        after = state.talk.engine_place(kept.item_id)
        state.tell(api.AddItem(state.session_id, item, after))


def said(item_id: str, text: str) -> api.Item | None:
    """What the model reads of an answer."""
    return api.Item(item_id, api.Role.ASSISTANT, (api.Text(text),)) if text else None
