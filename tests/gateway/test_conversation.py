"""The gateway's books of items."""

from __future__ import annotations

import pytest

from engine import api
from gateway.conversation import Conversation, Kept
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
