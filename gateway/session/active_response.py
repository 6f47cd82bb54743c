"""One response that runs: its item in the conversation, opened, closed and told to the engine, and
its report.

An item that is deleted while it grows is told of no more. What the client was told in the end is
what the model reads: an answer may have got further in the engine than in what was sent of it.
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
    kv_to_wire,
)
from headstart.gateway.session.speech_output import voice_report
from headstart.gateway.telemetry.latency import TurnBudget, TurnStamps, Unmeasured
from headstart.gateway.tts.spoken_response import SpokenResponse


@dataclass(slots=True)
class ActiveResponse:
    """One response that runs, with the stamps its budget is made of."""

    request: ResponseRequest
    response: Response
    calls: FunctionCalls
    stamps: TurnStamps
    turn: int = 0  # the utterance it answers; 0: none
    question_id: str | None = None
    budget: TurnBudget | Unmeasured | None = None
    stamp_pending: bool = False  # its first delta is on its way to the socket
    finished: api.Finished | None = None  # over before that delta was on the wire
    speaking: SpokenResponse | None = None  # of a spoken answer
    text_over: api.Finished | None = None  # the engine is through with it, the voice is not
    place: Place | None = None  # in the conversation; None: it is out of band
    said: str = ""  # once it is over: its text as the engine keeps it in the conversation
    own_input: bool = False  # it answers items of its own, and joins the conversation
    announced: bool = False  # the client knows of it
    outcome: api.Finished | None = None  # what the engine says of it, once it is over
    hangover: dict[str, Any] = field(default_factory=dict)  # what owns the wait before it

    @property
    def generation(self) -> int:
        return self.response.facts.generation

    @property
    def item_id(self) -> str:
        """Of the message, if it says anything."""
        return self.response.facts.item_id

    def grows(self, item_id: str) -> bool:
        """Whether more of it may still come into that item."""
        is_message = self.response.opened and self.item_id == item_id
        return is_message or self.calls.is_open(item_id)


def open_message(context: SessionContext, running: ActiveResponse) -> None:
    """Tell of the item, and put it where the answer stands."""
    response, place = running.response, running.place
    previous = None if place is None else context.conversation.previous_id(place)
    for event in response.open(previous):
        context.send(event)
    if place is not None:
        known = context.engine_keeps and not running.own_input
        wire = response.item("in_progress")
        keep_answer(context, ConversationItem(wire, None, running.speaking, known), place)


def text_over(context: SessionContext, running: ActiveResponse, event: api.Finished) -> None:
    """The engine is through with the answer: what it keeps of it, and a new one would have to."""
    if running.place is None or running.own_input:
        return
    running.said = event.text
    kept = context.conversation.find(running.item_id)
    if kept is not None:
        kept.engine = said(kept.item_id, event.text)


def close_message(context: SessionContext, running: ActiveResponse) -> None:
    """Before the closing events: what they tell of the item, if it is there."""
    response = running.response
    if running.speaking is not None and running.speaking.is_cut:
        response.text = running.speaking.heard()
    if running.place is None or not response.opened:
        return
    item_id = running.item_id
    response.gone = item_id not in context.conversation
    response.previous_item_id = None if response.gone else context.conversation.previous_id(item_id)


def settle(context: SessionContext, running: ActiveResponse, ending: Ending) -> None:
    """The response is over, and told so: the model reads what the client was told."""
    if running.place is None:
        return
    context.conversation.free(running.place)
    item_id = running.item_id
    kept = context.conversation.find(item_id)
    if kept is not None:
        kept.wire = running.response.item(item_status(ending))
        kept.engine, kept.known = said(item_id, running.said), kept.known and bool(running.said)
        amend(context, kept, said(item_id, running.response.text))
    elif running.said and context.engine_keeps:
        context.tell(api.RemoveItem(context.session_id, item_id))
    if running.own_input:  # the engine answered out of band what belongs to the conversation
        for call in filter(None, map(context.conversation.find, running.calls.item_ids)):
            amend(context, call, call.engine)


def send_report(context: SessionContext, running: ActiveResponse, event: api.Finished) -> None:
    """Its latency report, once it is over and its first token sent."""
    if running.budget is None:
        return  # nothing was ever sent, so there is no first token to count to
    usage = event.usage
    context.send_ours(
        "latency",
        context.events.latency_report(
            turn=running.turn,
            item_id=running.question_id if running.question_id in context.conversation else None,
            response_id=running.response.facts.response_id,
            budget=running.budget.to_wire(),
            kv=kv_to_wire(event.kv),
            chunks=context.chunks.to_wire(),
            usage={
                "input_tokens": usage.input,
                "cached_tokens": usage.cached,
                "output_tokens": usage.output,
                "speculated_tokens": usage.speculated,
                "wasted_tokens": usage.wasted,
            },
            decode_tok_s=event.decode_tok_s,
            voice=voice_report(running.speaking, running.stamps, running.budget),
        ),
    )
