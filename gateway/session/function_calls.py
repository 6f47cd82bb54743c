"""The function calls of one response: items of their own, after its message.

    item added ─▶ arguments deltas ─▶ arguments done, item done

If the response also has a message, its calls wait for the message to end: a client answers a call
by requesting the next response, which it may not do while this one is still being spoken.

"""

from __future__ import annotations

from dataclasses import dataclass

from headstart.engine import api
from headstart.gateway.protocol import items
from headstart.gateway.protocol.items import ItemStatus, Json
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.conversation import ConversationItem, Place
from headstart.gateway.session.engine_items import keep_answer
from headstart.gateway.session.response import Ending, ResponseFacts


@dataclass(slots=True)
class _Call:
    item_id: str
    call_id: str
    name: str
    output_index: int
    arguments: str = ""
    done: bool = False

    def item(self, status: ItemStatus) -> Json:
        return items.function_call(self.item_id, self.call_id, self.name, self.arguments, status)


class FunctionCalls:
    """The calls of one response. Stores them in the conversation; the caller sends the returned
    events.

    `place`: in the conversation; None: out of band. `in_engine`: the engine adds each completed
    call to its own conversation.

    """

    def __init__(
        self, context: SessionContext, facts: ResponseFacts, place: Place | None, *, in_engine: bool
    ) -> None:
        self._context = context
        self._facts = facts
        self._place = place
        self._in_engine = in_engine
        self._calls: dict[int, _Call] = {}
        self._held: list[api.Call] = []
        self._unseen: set[int] = set()  # complete calls that the client is never told about
        self._message = False  # the response has a message, at output index 0

    @property
    def begun(self) -> bool:
        return bool(self._calls)

    @property
    def item_ids(self) -> list[str]:
        return [call.item_id for call in self._calls.values()]

    def is_open(self, item_id: str) -> bool:
        """Whether arguments may still be added to that item."""
        return any(c.item_id == item_id and not c.done for c in self._calls.values())

    def drop(self, piece: api.Call) -> None:
        """Discard a piece that arrived after the response was cancelled."""
        if piece.done:
            self._unseen.add(piece.call)

    def hold(self, piece: api.Call) -> None:
        """Buffer a piece until the message has ended."""
        self._message = True
        self._held.append(piece)

    def take(self, piece: api.Call) -> list[Json]:
        """The client events for one piece of a call."""
        out: list[Json] = []
        call = self._calls.get(piece.call)
        if call is None:
            call = self._open(piece, out)
        call.arguments += piece.arguments
        events, facts = self._context.events, self._facts
        where = (facts.response_id, call.item_id, call.output_index, call.call_id)
        out.append(events.arguments_delta(*where, delta=piece.arguments))
        if piece.done:
            call.done = True
            out.append(events.arguments_done(*where, name=call.name, arguments=call.arguments))
            self._close(call, "completed", out)
        return out

    @property
    def is_told(self) -> bool:
        """Whether the client knows of a complete call, which it may be carrying out."""
        return any(call.done for call in self._calls.values())

    def close(self, ending: Ending, *, withdrawn: bool = False) -> tuple[list[Json], list[Json]]:
        """End the response: the closing events still to send, and all calls as items. `withdrawn`:
        the engine removes them by itself."""
        out: list[Json] = []
        wanted = ending.status in ("completed", "incomplete")
        for piece in self._held:
            if wanted:
                out += self.take(piece)
            else:
                self.drop(piece)
        for number in sorted(self._unseen) if self._in_engine and not withdrawn else ():
            self._forget(number)
        for call in self._calls.values():
            if not call.done:
                self._close(call, "incomplete", out)
        calls = [call for call in self._calls.values() if not self._is_gone(call)]
        return out, [call.item("completed" if call.done else "incomplete") for call in calls]

    def _is_gone(self, call: _Call) -> bool:
        """Whether the call's item was deleted, so that no event may name it."""
        return self._place is not None and call.item_id not in self._context.conversation

    def _open(self, piece: api.Call, out: list[Json]) -> _Call:
        context, facts, place = self._context, self._facts, self._place
        call = _Call(
            item_id=api.call_item_id(facts.item_id, piece.call),
            call_id=context.ids.call(),
            name=piece.name,
            output_index=len(self._calls) + self._message,
        )
        self._calls[piece.call] = call
        wire = call.item("in_progress")
        out.append(context.events.output_item_added(facts.response_id, call.output_index, wire))
        if place is not None:
            out.append(context.events.item_added(wire, context.conversation.previous_id(place)))
            keep_answer(context, ConversationItem(wire, None), place)
        return call

    def _close(self, call: _Call, status: ItemStatus, out: list[Json]) -> None:
        context, facts = self._context, self._facts
        if self._is_gone(call):
            return
        wire = call.item(status)
        kept = context.conversation.find(call.item_id) if self._place is not None else None
        if kept is not None:
            kept.wire = wire
            if status == "completed":
                called = (api.ToolCall(call.name, call.arguments),)
                kept.engine = api.Item(call.item_id, api.Role.ASSISTANT, called)
                kept.known = self._in_engine and context.engine_keeps
            previous = context.conversation.previous_id(call.item_id)
            out.append(context.events.item_done(wire, previous))
        out.append(context.events.output_item_done(facts.response_id, call.output_index, wire))

    def _forget(self, number: int) -> None:
        """Remove from the engine a call that the client will never see."""
        item_id = api.call_item_id(self._facts.item_id, number)
        self._context.send_to_engine(api.RemoveItem(self._context.session_id, item_id))
