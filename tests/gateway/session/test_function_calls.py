"""Function tools round trip: definitions, calls, results, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.engine import api
from tests.gateway.session_bench import Json, SessionBench, user_text

WEATHER: Json = {
    "type": "function",
    "name": "weather",
    "description": "tells the weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ARGUMENTS = '{"city": "Rome"}'


def bench_with_tools(**settings: Any) -> SessionBench:
    bench = SessionBench(**settings)
    bench.update(tools=[WEATHER])
    return bench


def call(bench: SessionBench, *pieces: str, number: int = 0, done: bool = True) -> None:
    """Play the engine's part: a call of the answer that was asked for last."""
    generation = bench.respond_command().generation
    for i, piece in enumerate(pieces):
        last = done and i == len(pieces) - 1
        bench.engine(api.Call("sess_test", generation, number, "weather", piece, last))


def test_the_tools_reach_the_engine() -> None:
    """An update tells the engine the functions; an engine that comes back is told them again."""
    bench = bench_with_tools()
    (tool,) = bench.commands(api.Instruct)[-1].tools
    assert (tool.name, tool.description) == ("weather", "tells the weather")
    assert "city" in tool.parameters
    bench.engine_lost()
    bench.engine_ready()
    assert bench.commands(api.Open)[-1].tools == (tool,)
    bench.update(tools=[])
    assert bench.commands(api.Instruct)[-1].tools == ()


def test_a_call_is_told_in_the_apis_order() -> None:
    """Item added, arguments piece by piece, done with all of them; the item is completed."""
    bench = bench_with_tools()
    bench.client("response.create")
    bench.sent.clear()
    call(bench, '{"city": ', '"Rome"}')
    bench.finish(bench.respond_command().generation, "")
    assert bench.types() == [
        "response.output_item.added",
        "conversation.item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    done = bench.last("response.function_call_arguments.done")
    assert (done["name"], done["arguments"]) == ("weather", ARGUMENTS)
    item = bench.last("response.output_item.done")["item"]
    assert item["status"] == "completed"
    assert item["call_id"] == done["call_id"]
    response = bench.last("response.done")["response"]
    assert (response["status"], response["output"]) == ("completed", [item])


def test_a_result_goes_to_the_model_and_the_next_answer_follows() -> None:
    """function_call_output is an item of the conversation, after the call."""
    bench = bench_with_tools()
    bench.client("response.create")
    call(bench, ARGUMENTS)
    bench.finish(bench.respond_command().generation, "")
    call_id = bench.last("response.function_call_arguments.done")["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "sunny"}
    bench.client("conversation.item.create", item=output)
    assert bench.last("conversation.item.done")["item"]["output"] == "sunny"
    added = bench.commands(api.AddItem)[-1].item
    assert added.parts == (api.ToolResult("sunny"),)
    bench.client("response.create")
    bench.answer("It is sunny.")
    assert bench.last("response.done")["response"]["status"] == "completed"
    assert "error" not in bench.types()


def test_what_was_called_outlives_the_engine() -> None:
    """A new engine is given the call and its result, in order."""
    bench = bench_with_tools()
    bench.client("response.create")
    call(bench, ARGUMENTS)
    bench.finish(bench.respond_command().generation, "")
    call_id = bench.last("response.function_call_arguments.done")["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "sunny"}
    bench.client("conversation.item.create", item=output)
    bench.engine_lost()
    bench.engine_ready()
    parts = [item.parts[0] for item in bench.commands(api.Open)[-1].items]
    assert parts == [api.ToolCall("weather", ARGUMENTS), api.ToolResult("sunny")]


def test_a_call_behind_words_waits_for_their_end() -> None:
    """The message is closed before the call begins, at output index 1, and then all is done."""
    bench = bench_with_tools()
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, "Let me look.", 0))
    bench.sent.clear()
    call(bench, ARGUMENTS)
    assert bench.types() == []
    bench.finish(generation, "Let me look.")
    types = bench.types()
    assert types.index("response.content_part.done") < types.index("response.output_item.added")
    assert bench.last("response.output_item.done")["output_index"] == 1
    output = bench.last("response.done")["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call"]


def test_a_spoken_answers_call_waits_for_its_sound() -> None:
    """Nobody may act on a call, and ask for the next answer, while this one is still spoken."""
    bench = bench_with_tools(speaks=True)
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, "Let me look.", 0))
    call(bench, ARGUMENTS)
    bench.finish(generation, "Let me look.")
    assert "response.function_call_arguments.done" not in bench.types()
    bench.say_all()
    assert bench.types()[-1] == "response.done"
    assert "response.function_call_arguments.done" in bench.types()


def test_an_interrupted_call_is_not_carried_out() -> None:
    """Cancelled in mid-call: its item ends incomplete, without arguments.done."""
    bench = bench_with_tools()
    bench.client("response.create")
    call(bench, '{"city": ', done=False)
    bench.client("response.cancel")
    bench.finish(bench.respond_command().generation, "", api.FinishReason.CANCELLED)
    assert "response.function_call_arguments.done" not in bench.types()
    assert bench.last("response.output_item.done")["item"]["status"] == "incomplete"
    assert bench.last("response.done")["response"]["status"] == "cancelled"


def test_a_call_that_was_held_back_and_cancelled_is_forgotten() -> None:
    """The engine's item of a call that the client never saw is removed again."""
    bench = bench_with_tools()
    bench.client("response.create")
    command = bench.respond_command()
    bench.engine(api.Delta("sess_test", command.generation, "Let me look.", 0))
    call(bench, ARGUMENTS)
    bench.client("response.cancel")
    bench.finish(command.generation, "Let me look.", api.FinishReason.CANCELLED)
    gone = bench.commands(api.RemoveItem)[-1].item_id
    assert gone == api.call_item_id(command.item_id, 0)
    assert "function_call" not in str(bench.last("response.done"))


def test_a_call_is_deleted_like_any_item() -> None:
    """Deleting it takes it from the model as well."""
    bench = bench_with_tools()
    bench.client("response.create")
    call(bench, ARGUMENTS)
    bench.finish(bench.respond_command().generation, "")
    item_id = bench.last("response.output_item.done")["item"]["id"]
    bench.client("conversation.item.delete", item_id=item_id)
    assert bench.commands(api.RemoveItem)[-1].item_id == item_id


def test_only_known_calls_have_results() -> None:
    """invalid_tool_call_id names what is wrong; a call that the client added itself counts."""
    bench = bench_with_tools()
    output = {"type": "function_call_output", "call_id": "nope", "output": "x"}
    bench.client("conversation.item.create", item=output)
    assert (bench.error()["code"], bench.error()["param"]) == (
        "invalid_tool_call_id",
        "item.call_id",
    )
    own = {"type": "function_call", "name": "weather", "arguments": "{}", "call_id": "nope"}
    bench.client("conversation.item.create", item=own)
    bench.client("conversation.item.create", item=output)
    assert len(bench.of("error")) == 1
    assert [c.item.role for c in bench.commands(api.AddItem)] == ["assistant", "user"]


@pytest.mark.parametrize(
    ("choice", "call", "function"),
    [
        ("auto", "auto", ""),
        ("none", "none", ""),
        ("required", "required", ""),
        ({"type": "function", "name": "weather"}, "required", "weather"),
    ],
)
def test_tool_choice_is_carried_out(choice: Any, call: str, function: str) -> None:
    """Of the session and of one response, the engine is told whether it may or must call what."""
    bench = bench_with_tools()
    bench.client("response.create", response={"tool_choice": choice})
    sampling = bench.respond_command().sampling
    assert (sampling.call, sampling.function) == (call, function)
    bench.answer("x")
    bench.update(tool_choice=choice)
    bench.client("response.create")
    sampling = bench.respond_command().sampling
    assert (sampling.call, sampling.function) == (call, function)


def test_a_call_that_cannot_be_made_is_refused() -> None:
    """A response that requires a function there isn't is an error naming the field; a session's
    choice may come before its tools, and is as auto until then."""
    bench = SessionBench()
    bench.client("response.create", response={"tool_choice": "required"})
    assert (bench.error()["code"], bench.error()["param"]) == (
        "invalid_value",
        "response.tool_choice",
    )
    named = {"type": "function", "name": "nope"}
    bench.client("response.create", response={"tool_choice": named, "tools": [WEATHER]})
    assert bench.error()["param"] == "response.tool_choice.name"
    bench.update(tool_choice=named)
    bench.client("response.create")
    assert bench.respond_command().sampling.call == "auto"
    assert len(bench.of("error")) == 2


def test_a_response_may_have_tools_of_its_own() -> None:
    """Its tools go with it; an empty list means that nothing is called."""
    bench = bench_with_tools()
    other = WEATHER | {"name": "other"}
    bench.client("response.create", response={"tools": [other]})
    assert [tool.name for tool in bench.respond_command().tools or ()] == ["other"]
    bench.answer("x")
    bench.client("response.create", response={"tools": []})
    assert bench.respond_command().sampling.call == "none"


def test_a_model_that_repeats_its_call_has_to_answer() -> None:
    """The same call twice since the user's last message: the next answer may not call; after the
    next message it may again. Other arguments are another call."""
    bench = bench_with_tools()
    bench.client("conversation.item.create", item=user_text("Weather?"))
    choices = []
    for arguments in ('{"city": "Oslo"}', ARGUMENTS, ARGUMENTS):
        bench.client("response.create")
        choices.append(bench.respond_command().sampling.call)
        call(bench, arguments)
        bench.finish(bench.respond_command().generation, "")
    bench.client("response.create")
    assert [*choices, bench.respond_command().sampling.call] == ["auto"] * 3 + ["none"]
    bench.answer("Sunny.")
    bench.client("conversation.item.create", item=user_text("And now?"))
    bench.client("response.create")
    assert bench.respond_command().sampling.call == "auto"


def test_out_of_band_calls_stay_out_of_the_conversation() -> None:
    """No conversation event, no item."""
    bench = bench_with_tools()
    bench.client("response.create", response={"conversation": "none"})
    bench.sent.clear()
    call(bench, ARGUMENTS)
    bench.finish(bench.respond_command().generation, "")
    assert not [t for t in bench.types() if t.startswith("conversation.")]
    assert "response.function_call_arguments.done" in bench.types()


@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({"tools": [{"type": "function"}]}, "session.tools[0].name"),
        (
            {"tools": [{"type": "mcp", "server_label": "x", "server_url": "http://x"}]},
            "session.tools[0].type",
        ),
        ({"tool_choice": {"type": "mcp", "server_label": "x"}}, "session.tool_choice.type"),
    ],
)
def test_what_is_no_function_is_refused_by_name(session: Json, param: str) -> None:
    """A tool without a name, and MCP."""
    bench = SessionBench()
    bench.update(**session)
    assert bench.error()["param"] == param
    assert "session.updated" not in bench.types()
