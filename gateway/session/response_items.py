"""What a response says, as an item of the conversation: opened, closed, and told to the engine.

An item that is deleted while it grows is told of no more. What the client was told in the end is
what the model reads: an answer may have got further in the engine than in what was sent of it.
"""

from __future__ import annotations

from headstart.engine import api
from headstart.gateway.session.active_response import ActiveResponse
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.conversation import ConversationItem
from headstart.gateway.session.engine_items import amend, keep_answer, said
from headstart.gateway.session.response import Ending, item_status


def open_message(state: SessionContext, running: ActiveResponse) -> None:
    """Tell of the item, and put it where the answer stands."""
    response, place = running.response, running.place
    previous = None if place is None else state.conversation.previous_id(place)
    for event in response.open(previous):
        state.send(event)
    if place is not None:
        known = state.engine_keeps and not running.own_input
        wire = response.item("in_progress")
        keep_answer(state, ConversationItem(wire, None, running.speaking, known), place)


def text_over(state: SessionContext, running: ActiveResponse, event: api.Finished) -> None:
    """The engine is through with the answer: what it keeps of it, and a new one would have to."""
    if running.place is None or running.own_input:
        return
    running.said = event.text
    kept = state.conversation.find(running.item_id)
    if kept is not None:
        kept.engine = said(kept.item_id, event.text)


def close_message(state: SessionContext, running: ActiveResponse) -> None:
    """Before the closing events: what they tell of the item, if it is there."""
    response = running.response
    if running.speaking is not None and running.speaking.is_cut:
        response.text = running.speaking.heard()
    if running.place is None or not response.opened:
        return
    item_id = running.item_id
    response.gone = item_id not in state.conversation
    response.previous_item_id = None if response.gone else state.conversation.previous_id(item_id)


def settle(state: SessionContext, running: ActiveResponse, ending: Ending) -> None:
    """The response is over, and told so: the model reads what the client was told."""
    if running.place is None:
        return
    state.conversation.free(running.place)
    item_id = running.item_id
    kept = state.conversation.find(item_id)
    if kept is not None:
        kept.wire = running.response.item(item_status(ending))
        kept.engine, kept.known = said(item_id, running.said), kept.known and bool(running.said)
        amend(state, kept, said(item_id, running.response.text))
    elif running.said and state.engine_keeps:
        state.tell(api.RemoveItem(state.session_id, item_id))
    if running.own_input:  # the engine answered out of band what belongs to the conversation
        for call in filter(None, map(state.conversation.find, running.calls.item_ids)):
            amend(state, call, call.engine)
