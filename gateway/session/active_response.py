"""One active response: its item in the conversation and in the engine, and its stamps.

No more events are sent about an item that is deleted while the response still grows. The model's
context ends up with the text that was sent to the client: the engine may have generated more than
that.

"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headstart.engine import api
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.conversation import ConversationItem, Place
from headstart.gateway.session.engine_items import amend, keep_answer, said
from headstart.gateway.session.function_calls import FunctionCalls
from headstart.gateway.session.response import (
    Ending,
    Response,
    ResponseRequest,
    item_status,
)
from headstart.gateway.telemetry.latency import TurnBudget, TurnStamps, Unmeasured
from headstart.gateway.tts.spoken_response import SpokenResponse


@dataclass(slots=True)
class ActiveResponse:
    """One active response, with the stamps of its latency budget."""

    request: ResponseRequest
    response: Response
    calls: FunctionCalls
    stamps: TurnStamps
    turn: int = 0  # the turn (utterance) it answers; 0: none
    question_id: str | None = None
    budget: TurnBudget | Unmeasured | None = None
    stamp_pending: bool = False  # its first delta is not yet written to the socket
    speaking: SpokenResponse | None = None  # of a spoken response
    text_over: api.Finished | None = None  # the engine has finished, speech synthesis has not
    place: Place | None = None  # in the conversation; None: out of band
    said: str = ""  # once it is over: its text as stored in the engine's conversation
    own_input: bool = False  # it has its own `input`, and joins the conversation
    announced: bool = False  # `response.created` was sent
    outcome: api.Finished | None = None  # the engine's result, once it is over
    hangover: dict[str, Any] = field(default_factory=dict)  # what owns the wait before it
    calls_from_ns: int = 0  # until then its function calls are held back; 0: it is not revocable
    early_calls: list[api.Call] = field(default_factory=list)  # those, in order
    revoked_ns: int | None = None  # when it was taken back

    @property
    def generation(self) -> int:
        return self.response.facts.generation

    @property
    def is_revocable(self) -> bool:
        """Whether it answers a turn whose end may be taken back."""
        return self.calls_from_ns > 0

    @property
    def is_spoken(self) -> bool:
        """Whether nothing is left to be spoken, or called."""
        return not self.early_calls and (self.speaking is None or self.speaking.over)

    @property
    def item_id(self) -> str:
        """The id of its message item, which exists once there is text."""
        return self.response.facts.item_id

    def owns(self, item_id: str) -> bool:
        """Whether that is the id of its message or of a call, made or still to be made."""
        return item_id == self.item_id or item_id.startswith(f"{self.item_id}_")

    def grows(self, item_id: str) -> bool:
        """Whether the response may still add to that item."""
        is_message = self.response.opened and self.item_id == item_id
        return is_message or self.calls.is_open(item_id)


def open_message(context: SessionContext, running: ActiveResponse) -> None:
    """Announce the message item and insert it at the response's place in the conversation."""
    response, place = running.response, running.place
    previous = None if place is None else context.conversation.previous_id(place)
    for event in response.open(previous):
        context.send(event)
    if place is not None:
        known = context.engine_keeps and not running.own_input
        wire = response.item("in_progress")
        keep_answer(context, ConversationItem(wire, None, running.speaking, known), place)


def text_over(context: SessionContext, running: ActiveResponse, event: api.Finished) -> None:
    """The engine has finished the text. Record what the engine stores of it, which is also what a
    restarted engine will be given."""
    if running.place is None or running.own_input:
        return
    running.said = event.text
    kept = context.conversation.find(running.item_id)
    if kept is not None:
        kept.engine = said(kept.item_id, event.text)


def close_message(context: SessionContext, running: ActiveResponse) -> None:
    """Prepare the closing events: the final text, and the item's position if it still exists."""
    response, speaking = running.response, running.speaking
    if speaking is not None and response.cancel_reason is not None and not speaking.problem:
        speaking.cut(speaking.samples)  # what was never sent as sound was heard by nobody
    if speaking is not None and speaking.is_cut:
        response.text = speaking.heard_text()
    if running.place is None or not response.opened:
        return
    item_id = running.item_id
    response.item_deleted = item_id not in context.conversation
    response.previous_item_id = (
        None if response.item_deleted else context.conversation.previous_id(item_id)
    )


def settle(context: SessionContext, running: ActiveResponse, ending: Ending) -> None:
    """The response is over and its events are sent: match the model's context to the sent text."""
    if running.place is None:
        return
    context.conversation.free(running.place)
    if running.revoked_ns is not None:
        withdraw(context, running)
        return
    item_id = running.item_id
    kept = context.conversation.find(item_id)
    if kept is not None:
        kept.wire = running.response.item(item_status(ending))
        kept.engine, kept.known = said(item_id, running.said), kept.known and bool(running.said)
        amend(context, kept, said(item_id, running.response.text))
    elif running.said and context.engine_keeps:
        context.send_to_engine(api.RemoveItem(context.session_id, item_id))
    if running.own_input:  # generated out of band, but its calls belong to the conversation
        for call in filter(None, map(context.conversation.find, running.calls.item_ids)):
            amend(context, call, call.engine)


def withdraw(context: SessionContext, running: ActiveResponse) -> None:
    """Delete the items of a response that was taken back. The engine removes its own."""
    for item_id in (running.item_id, *running.calls.item_ids):
        if item_id in context.conversation:
            context.conversation.withdraw(item_id)
            context.send(context.events.item_deleted(item_id))
