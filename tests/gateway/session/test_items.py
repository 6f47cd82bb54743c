"""Items of clients; what they get wrong is in test_session_errors."""

from __future__ import annotations

import pytest

from headstart.engine import api
from tests.gateway.session_bench import SessionBench


def test_an_item_comes_and_goes() -> None:
    """Placed where it was asked for, told to the engine, echoed; and all of that undone."""
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


def called(bench: SessionBench, arguments: str = "{}", item_id: str = "f") -> None:
    call = {"id": item_id, "type": "function_call", "name": "f", "call_id": "c"}
    bench.client("conversation.item.create", item={**call, "arguments": arguments})


def put_out(bench: SessionBench, item_id: str) -> None:
    item = {"id": item_id, "type": "function_call_output", "call_id": "c", "output": "42"}
    bench.client("conversation.item.create", item=item)


def test_a_call_has_one_output() -> None:
    """A second one is refused by name; behind the deletion of the first it is the first."""
    bench = SessionBench()
    called(bench)
    put_out(bench, "o1")
    assert not bench.of("error")
    told = len(bench.told)
    put_out(bench, "o2")
    assert (bench.error()["code"], bench.error()["param"]) == (
        "invalid_tool_call_id",
        "item.call_id",
    )
    assert "has its output already" in bench.error()["message"]
    assert len(bench.told) == told
    bench.client("conversation.item.delete", item_id="o1")
    put_out(bench, "o2")
    assert len(bench.of("error")) == 1


@pytest.mark.parametrize("arguments", ["", "{", "5", "[1]", '{"a": NaN}', "{} {}", "x"])
def test_arguments_are_a_json_object(arguments: str) -> None:
    """As what the model reads is one; in an item and in an answer's input."""
    bench = SessionBench()
    called(bench, arguments)
    assert (bench.error()["code"], bench.error()["param"]) == ("invalid_value", "item.arguments")
    item = {"type": "function_call", "name": "f", "call_id": "c", "arguments": arguments}
    bench.client("response.create", response={"conversation": "none", "input": [item]})
    assert bench.error()["param"] == "response.input[0].arguments"
    assert not bench.commands(api.AddItem)
    called(bench, ' {"a": [1, 2.5]} ')
    assert len(bench.of("error")) == 2


def test_a_silence_that_ends_every_turn_at_once_is_refused() -> None:
    """0 ms would cut each word from the next."""
    bench = SessionBench()
    turns = {"type": "server_vad", "silence_duration_ms": 0}
    bench.update(audio={"input": {"turn_detection": turns}})
    assert bench.error()["param"] == "session.audio.input.turn_detection.silence_duration_ms"
