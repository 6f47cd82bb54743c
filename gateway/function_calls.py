"""The functions that one answer calls: items of their own, behind what it says.

    item added ─▶ arguments deltas ─▶ arguments done, item done

Calls of an answer that also says something wait for its end: a client answers a call by asking for
the next response, and may not do so while this one is still spoken.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine import api
from gateway.conversation import Kept
from gateway.protocol import items
from gateway.protocol.items import ItemStatus, Json
from gateway.response import Ending, ResponseFacts
from gateway.state import SessionState


@dataclass(slots=True)
class _Call:
    item_id: str
    call_id: str
    name: str
    output_index: int
    previous_item_id: str | None
    arguments: str = ""
    done: bool = False

    def item(self, status: ItemStatus) -> Json:
        return items.function_call(self.item_id, self.call_id, self.name, self.arguments, status)


class FunctionCalls:
    """Of one response. Keeps the conversation's books of them; the events are the caller's."""

    def __init__(self, state: SessionState, facts: ResponseFacts) -> None:
        self._state = state
        self._facts = facts
        self._calls: dict[int, _Call] = {}
        self._held: list[api.Call] = []
        self._message = False  # the response has one, at output index 0

    @property
    def begun(self) -> bool:
        return bool(self._calls)

    @property
    def item_ids(self) -> list[str]:
        return [call.item_id for call in self._calls.values()]

    def hold(self, piece: api.Call) -> None:
        """Keep a piece until the message is over."""
        self._message = True
        self._held.append(piece)

    def take(self, piece: api.Call) -> list[Json]:
        """What the client is told of a piece of a call."""
        out: list[Json] = []
        call = self._calls.get(piece.call)
        if call is None:
            call = self._open(piece, out)
        call.arguments += piece.arguments
        events, facts = self._state.events, self._facts
        where = (facts.response_id, call.item_id, call.output_index, call.call_id)
        out.append(events.arguments_delta(*where, delta=piece.arguments))
        if piece.done:
            call.done = True
            out.append(events.arguments_done(*where, name=call.name, arguments=call.arguments))
            self._close(call, "completed", out)
        return out

    def close(self, ending: Ending) -> tuple[list[Json], list[Json]]:
        """The response is over: the events that are still due, and all calls as items."""
        out: list[Json] = []
        wanted = ending.status in ("completed", "incomplete")
        for piece in self._held:
            if wanted:
                out += self.take(piece)
            elif piece.done and not self._facts.out_of_band:
                self._forget(piece.call)
        for call in self._calls.values():
            if not call.done:
                self._close(call, "incomplete", out)
        return out, [c.item("completed" if c.done else "incomplete") for c in self._calls.values()]

    def _open(self, piece: api.Call, out: list[Json]) -> _Call:
        state, facts = self._state, self._facts
        talk = state.talk
        call = _Call(
            item_id=api.call_item_id(facts.item_id, piece.call),
            call_id=state.ids.call(),
            name=piece.name,
            output_index=len(self._calls) + self._message,
            previous_item_id=None if facts.out_of_band else talk.tail_id,
        )
        self._calls[piece.call] = call
        wire = call.item("in_progress")
        out.append(state.events.output_item_added(facts.response_id, call.output_index, wire))
        if not facts.out_of_band:
            talk.insert(Kept(wire, None), call.previous_item_id)
            out.append(state.events.item_added(wire, call.previous_item_id))
        return call

    def _close(self, call: _Call, status: ItemStatus, out: list[Json]) -> None:
        state, facts = self._state, self._facts
        wire = call.item(status)
        kept = None if facts.out_of_band else state.talk.find(call.item_id)
        if kept is not None:
            kept.wire = wire
            if status == "completed":
                called = (api.ToolCall(call.name, call.arguments),)
                kept.engine = api.Item(call.item_id, api.Role.ASSISTANT, called)
        if not facts.out_of_band:
            out.append(state.events.item_done(wire, call.previous_item_id))
        out.append(state.events.output_item_done(facts.response_id, call.output_index, wire))

    def _forget(self, number: int) -> None:
        """The engine knows of a call that the client will never see."""
        item_id = api.call_item_id(self._facts.item_id, number)
        self._state.tell(api.RemoveItem(self._state.session_id, item_id))
