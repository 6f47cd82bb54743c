"""The gateway's books of items."""

from __future__ import annotations

import pytest

from engine import api
from gateway.conversation import BYTES_MAX, ITEMS_MAX, Conversation, Kept
from gateway.protocol.errors import ProtocolError


def kept(item_id: str, *, for_engine: bool = True) -> Kept:
    item = api.Item(item_id, api.Role.USER, (api.Text(item_id),))
    return Kept({"id": item_id}, item if for_engine else None)


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


def pictured(item_id: str) -> Kept:
    picture = api.Image(1000, 1000, bytes(3_000_000))
    item = api.Item(item_id, api.Role.USER, (picture, api.Text("What?")))
    return Kept({"id": item_id, "content": [{"type": "input_text", "text": "What?"}]}, item)


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
