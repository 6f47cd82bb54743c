"""The gateway's books of items."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from headstart.engine import api
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.session import conversation
from headstart.gateway.session.conversation import (
    BYTES_MAX,
    ITEMS_MAX,
    Conversation,
    ConversationItem,
)


def kept(item_id: str, *, for_engine: bool = True) -> ConversationItem:
    item = api.Item(item_id, api.Role.USER, (api.Text(item_id),))
    wire = {"id": item_id, "type": "message"}
    return ConversationItem(wire, item if for_engine else None)


def filled(*item_ids: str) -> Conversation:
    talk = Conversation()
    for item_id in item_ids:
        talk.insert(kept(item_id), talk.place(item_id, None))
    return talk


def test_places() -> None:
    """Nothing is the end, "root" the head, an id the place behind that item."""
    talk = filled("a", "b")
    assert talk.place("c", None) == "b"
    assert talk.place("c", "root") is None
    assert talk.place("c", "a") == "a"


def test_items_keep_their_order() -> None:
    """What the engine is given after a restart is in the conversation's order."""
    talk = filled("a", "b")
    talk.insert(kept("x"), talk.place("x", "root"))
    talk.insert(kept("y", for_engine=False), talk.place("y", "a"))
    assert [item.item_id for item in talk.for_engine()] == ["x", "a", "b"]
    assert talk.tail_id == "b"


def test_an_id_can_be_used_once() -> None:
    """The same id again is refused, until the item is deleted."""
    talk = filled("a")
    with pytest.raises(ProtocolError) as refused:
        talk.place("a", None)
    assert refused.value.code == "item_create_duplicate_item_id"
    talk.remove("a")
    assert talk.place("a", None) is None


def test_unknown_ids_are_named() -> None:
    """Each request has its own code for an item that is not there."""
    talk = filled("a")
    with pytest.raises(ProtocolError) as refused:
        talk.place("b", "nope")
    assert refused.value.code == "item_create_invalid_item_id"
    with pytest.raises(ProtocolError) as refused:
        talk.remove("nope")
    assert refused.value.code == "item_delete_invalid_item_id"
    with pytest.raises(ProtocolError) as refused:
        talk.get("nope", "retrieve")
    assert refused.value.code == "item_retrieve_invalid_item_id"


def pictured(item_id: str) -> ConversationItem:
    picture = api.Image(1000, 1000, bytes(3_000_000))
    item = api.Item(item_id, api.Role.USER, (picture, api.Text("What?")))
    return ConversationItem(
        {"id": item_id, "content": [{"type": "input_text", "text": "What?"}]}, item
    )


def test_a_session_s_books_are_bounded_in_items() -> None:
    """The oldest are forgotten, and naming one is an error as for any that is not there."""
    talk = Conversation()
    for i in range(ITEMS_MAX + 5):
        talk.insert(kept(f"i{i}"), talk.tail_id)
    assert len(talk) == ITEMS_MAX
    assert "i4" not in talk
    assert talk.for_engine()[0].item_id == "i5"
    with pytest.raises(ProtocolError):
        talk.remove("i0")


def test_pictures_go_before_items_do() -> None:
    """Hundreds of MB of them: the newest are kept for a restarted engine, of others their words."""
    talk = Conversation()
    for i in range(60):
        talk.insert(pictured(f"p{i}"), talk.tail_id)
    assert len(talk) == 60
    kept_pictures = [len(item.parts) == 2 for item in talk.for_engine()]
    assert sum(kept_pictures) * 3_000_000 <= BYTES_MAX
    assert all(kept_pictures[-16:])
    assert not any(kept_pictures[:30])


@pytest.mark.parametrize("how", ["deleted", "forgotten"])
def test_the_pictures_of_an_item_go_with_it(how: str) -> None:
    """Whoever still holds the item, as does a transcript that is to come, holds no pixels that no
    bound counts."""
    talk, item = Conversation(), pictured("p")
    talk.insert(item, talk.tail_id)
    if how == "deleted":
        talk.remove("p")
    for i in range(ITEMS_MAX if how == "forgotten" else 0):
        talk.insert(kept(f"i{i}"), talk.tail_id)
    assert "p" not in talk
    assert item.picture_bytes == 0


def test_long_texts_count_when_they_have_come() -> None:
    """An answer is put into its item later; its size counts all the same."""
    talk = Conversation()
    for i in range(600):
        item = kept(f"i{i}")
        talk.insert(item, talk.tail_id)
        item.wire["content"] = [{"type": "output_text", "text": "x" * 250_000}]
    assert 100 < len(talk) < 200
    for item_id in [f"i{i}" for i in range(600) if f"i{i}" in talk]:
        talk.remove(item_id)
    talk.insert(kept("z"), None)
    assert len(talk) == 1


def steps(of: Callable[[], object]) -> int:
    """Calls and lines that a piece of work takes in the books: a count, not a time."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        wanted = frame.f_code.co_filename.endswith(("conversation.py", "chain.py"))
        count += wanted
        return trace if wanted else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        of()
    finally:
        sys.settrace(before)
    return count


def long_talk(count: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What each thing costs that is done for one item of `count`."""
    monkeypatch.setattr(conversation, "ITEMS_MAX", 20_000)
    talk = Conversation()
    for i in range(count):
        kind = {"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": "{}"}
        item = ConversationItem(
            {"id": f"i{i}", **kind}, api.Item(f"i{i}", api.Role.USER, ()), known=True
        )
        talk.insert(item, talk.tail_id)
    middle = f"i{count // 2}"
    return {
        "append": steps(lambda: talk.insert(kept("new"), talk.place("new", None))),
        "insert": steps(lambda: talk.insert(kept("other"), talk.place("other", middle))),
        "place": steps(lambda: talk.engine_place(f"i{count - 1}")),
        "has_call": steps(lambda: talk.has_call("c0")),
        "repeats": steps(talk.repeats_itself),
        "previous": steps(lambda: talk.previous_id(middle)),
        "remove": steps(lambda: talk.remove(f"i{count // 2 - 1}")),
        "newest": steps(lambda: talk.newest(64)),
    }


def test_an_item_costs_the_same_among_ten_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is done for one item takes the same number of steps among 1,000 and 10,000."""
    few, many = (long_talk(count, monkeypatch) for count in (1_000, 10_000))
    assert few == many


def test_a_full_conversation_forgets_at_the_same_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with pictures that have to go, and with items of which the oldest is forgotten."""
    costs = []
    for count in (100, 1_000):
        monkeypatch.setattr(conversation, "ITEMS_MAX", count)
        monkeypatch.setattr(conversation, "BYTES_MAX", count * conversation._ITEM_BYTES + 5_000)
        talk = Conversation()
        for i in range(count + 10):
            picture = api.Item(f"p{i}", api.Role.USER, (api.Image(10, 10, bytes(300)),))
            talk.insert(ConversationItem({"id": f"p{i}"}, picture), talk.tail_id)
        costs.append(steps(functools.partial(talk.insert, kept("new"), talk.tail_id)))
    assert costs[0] == costs[1]


def test_an_answer_stands_where_it_was_asked_for() -> None:
    """Behind what it has read, whatever is put in and taken out before it has words. What is put
    behind the last item there is comes behind it, as it was asked for later."""
    talk = filled("a", "b")
    place = talk.reserve()
    talk.insert(kept("late"), talk.place("late", "b"))
    talk.insert(kept("later"), talk.place("later", None))
    talk.insert(kept("after b"), talk.place("after b", "b"))
    talk.remove("b")
    assert talk.previous_id(place) == "after b"
    talk.insert_answer(kept("answer"), place)
    talk.insert_answer(kept("call"), place)
    talk.free(place)
    order = [item.item_id for item in talk]
    assert order == ["a", "after b", "answer", "call", "late", "later"]


def test_the_engine_is_told_of_places_that_it_knows() -> None:
    """None is the end; else the nearest item before that it has; "root" where it has none."""
    talk = filled("a", "b", "c", "d")
    assert talk.engine_place("d") is None
    assert talk.engine_place("c") == "root"
    talk.get("a", "retrieve").known = True
    assert talk.engine_place("c") == "a"
    talk.engine_lost()
    assert talk.engine_place("c") == "root"


def test_outputs_are_counted_by_their_call() -> None:
    """Until the item is deleted."""
    talk = Conversation()
    for item_id, kind in (("a", "function_call"), ("b", "function_call_output")):
        talk.insert(
            ConversationItem({"id": item_id, "type": kind, "call_id": "c"}, None), talk.tail_id
        )
    assert talk.has_call("c")
    assert talk.has_output("c")
    talk.remove("b")
    assert not talk.has_output("c")
    talk.remove("a")
    assert not talk.has_call("c")
