"""Functions called by an answer, from the prompt to the conversation, over the scripted engine."""

from __future__ import annotations

from headstart.engine import api
from headstart.engine.session.generation import WORDS_ONLY, answer_instructions
from tests.engine.fakes import Bench

EITHER_BACKEND = True

WEATHER = api.Tool("weather", "tells the weather", '{"type": "object"}')
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
SAMPLING = api.Sampling(repetition_penalty=1.0)


def sunny(question: str) -> str:
    """Calls a function about the weather, and tells what it gave."""
    if "tool_response" in question:
        return "It is " + question.split("<tool_response>")[1].split("<")[0]
    return CALL if "weather" in question else "Hello"


def bench_with(*tools: api.Tool, reply: object = sunny) -> Bench:
    bench = Bench(script="how is the weather", reply=reply)  # type: ignore[arg-type]
    bench.tell(api.Open("s", "Hi", tools=tools))
    bench.run()
    return bench


def ask(bench: Bench, text: str, generation: int = 1, sampling: api.Sampling = SAMPLING) -> None:
    item = api.Item(f"u{generation}", api.Role.USER, (api.Text(text),))
    bench.tell(api.AddItem("s", item), api.Respond("s", generation, f"a{generation}", sampling))
    bench.run()


def calls(bench: Bench, generation: int = 1) -> list[tuple[str, str]]:
    """(name, arguments) of the whole calls of an answer."""
    found: dict[int, str] = {}
    whole = []
    for event in bench.events:
        if isinstance(event, api.Call) and event.generation == generation:
            found[event.call] = found.get(event.call, "") + event.arguments
            if event.done:
                whole.append((event.name, found[event.call]))
    return whole


def test_a_call_and_its_result_make_a_round_trip() -> None:
    """The call is no text; its result is what the next answer speaks of."""
    bench = bench_with(WEATHER)
    ask(bench, "weather?")
    assert calls(bench) == [("weather", '{"city": "Rome"}')]
    assert bench.text() == ""
    assert bench.finished().reason is api.FinishReason.STOP
    result = api.Item("r1", api.Role.USER, (api.ToolResult("sunny"),))
    bench.tell(api.AddItem("s", result), api.Respond("s", 2, "a2", SAMPLING))
    bench.run()
    assert bench.text(2) == "It is sunny"
    assert f"<A>{CALL}</><U><tool_response>sunny" in bench.stream_text()


def test_the_cache_keeps_what_was_decoded_of_a_call() -> None:
    """The call becomes an item that reads like the tokens it was decoded from: no roll-back."""
    bench = bench_with(WEATHER)
    ask(bench, "weather?")
    assert bench.engine.sessions["s"].stream.rolled_back_kv_tokens <= len("</tool_call>") + 1


def test_text_and_calls_of_one_answer_are_items_of_one_message() -> None:
    """Both read as one message; each can be removed by itself."""
    bench = bench_with(WEATHER, reply=lambda _: f"Let me look.\n{CALL}")
    ask(bench, "weather?")
    assert bench.text() == "Let me look."
    assert f"<A>Let me look.\n{CALL}</>" in bench.stream_text()
    bench.tell(api.RemoveItem("s", "a1"))
    bench.run()
    assert f"<A>{CALL}</>" in bench.stream_text()
    bench.tell(api.RemoveItem("s", api.call_item_id("a1", 0)))
    bench.run()
    assert "tool_call" not in bench.stream_text()


def test_calls_of_a_speculated_answer_wait_for_the_endpoint() -> None:
    """Nothing is called at a hush; at the end of speech the same call is adopted."""
    bench = bench_with(WEATHER)
    bench.say(words=4)
    ref = api.TurnRef(1)
    bench.tell(api.Hush("s", ref, 0, SAMPLING))
    bench.run()
    assert calls(bench) == []
    bench.tell(api.EndSpeech("s", ref, 0), api.Respond("s", 1, "a1", SAMPLING))
    bench.run()
    assert calls(bench) == [("weather", '{"city": "Rome"}')]
    assert bench.finished().usage.speculated > 0


def test_a_call_that_is_required_is_forced() -> None:
    """required and a name: the answer begins with that call, whatever the model would say."""
    bench = bench_with(WEATHER)
    bench.runner.reply = lambda _: '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
    must = api.Sampling(repetition_penalty=1.0, call=api.ToolChoice.REQUIRED, function="weather")
    steps = bench.runner.steps
    ask(bench, "hello", sampling=must)
    assert calls(bench) == [("weather", "{}")]
    forced = len('<tool_call>\n{"name": "weather", "arguments":')
    assert bench.runner.steps - steps < forced  # they are read at once, not decoded


def test_none_calls_nothing() -> None:
    """tool_choice none: no answer begins with a call, and one that comes to a call stops there."""
    none = api.Sampling(repetition_penalty=1.0, call=api.ToolChoice.NONE)
    bench = bench_with(WEATHER, reply=lambda _: f"Well. {CALL}")
    ask(bench, "weather?", sampling=none)
    assert calls(bench) == []
    assert bench.text() == "Well. "
    assert WORDS_ONLY not in bench.stream_text()  # it was said for that answer alone
    bench = bench_with(WEATHER)
    ask(bench, "weather?", sampling=none)
    assert calls(bench) == []
    assert "<" not in bench.text()[:1]


def test_a_model_is_told_that_it_must_not_call() -> None:
    """Behind its own instructions; without functions, or where it may call, nothing is added."""
    none = api.Sampling(call=api.ToolChoice.NONE)
    answer = api.Respond("s", 1, "a1", none, instructions="Be kind.")
    assert answer_instructions(answer, [WEATHER]) == f"Be kind.\n{WORDS_ONLY}"
    assert answer_instructions(answer, []) == "Be kind."
    assert answer_instructions(api.Respond("s", 1, "a1", none), [WEATHER]) == WORDS_ONLY
    assert answer_instructions(api.Respond("s", 1, "a1", SAMPLING), [WEATHER]) is None


def test_what_cannot_be_called_fails_the_answer() -> None:
    """An unknown function: failed, with a code; the session goes on, and the model does not read
    what nobody was told of."""
    bench = bench_with(api.Tool("hang_up"))
    ask(bench, "weather?")
    assert bench.finished().reason is api.FinishReason.FAILED
    assert bench.finished().code == "tool_call_malformed"
    assert bench.stream_text() == "<S>Hi[hang_up]</><U>weather?"
    bench.tell(api.RemoveItem("s", "u1"))
    ask(bench, "hello", generation=2)
    assert bench.text(2) == "Hello"


def test_an_answer_may_have_tools_of_its_own() -> None:
    """Tools of one response: in the conversation behind it, out of band in its head; the session
    has none of them afterwards."""
    bench = bench_with()
    item = api.Item("u1", api.Role.USER, (api.Text("weather?"),))
    own = api.Respond("s", 1, "a1", SAMPLING, tools=(WEATHER,))
    aside = api.Respond("s", -1, "b1", SAMPLING, items=(item,), tools=(WEATHER,))
    bench.tell(api.AddItem("s", item), own, aside)
    bench.run()
    assert calls(bench, 1) == calls(bench, -1) == [("weather", '{"city": "Rome"}')]
    ask(bench, "weather?", generation=2)
    assert calls(bench, 2) == []
    assert bench.text(2) == CALL
