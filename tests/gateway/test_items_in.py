"""Items of clients; what they get wrong is in test_session_errors."""

from __future__ import annotations

from engine import api
from gateway.items_in import delete_item, place_item
from tests.gateway.session_bench import SessionBench


def test_an_item_comes_and_goes() -> None:
    """Placed where it was asked for, told to the engine, echoed; and all of that undone."""
    assert callable(place_item)
    assert callable(delete_item)
    bench = SessionBench()
    content = [{"type": "input_text", "text": "Hi"}]
    for item_id, previous in (("b", None), ("a", "root")):
        item = {"id": item_id, "type": "message", "role": "user", "content": content}
        bench.client("conversation.item.create", item=item, previous_item_id=previous)
    assert [c.after for c in bench.commands(api.AddItem)] == [None, "root"]
    assert [e["previous_item_id"] for e in bench.of("conversation.item.done")] == [None, None]
    bench.client("conversation.item.delete", item_id="a")
    assert bench.commands(api.RemoveItem)[0].item_id == "a"
    assert bench.last("conversation.item.deleted")["item_id"] == "a"
