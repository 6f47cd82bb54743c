"""Sessions that outgrow their window: what they forget, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headstart.engine import api
from headstart.engine.chat.accounting import Modality
from headstart.engine.chat.context_window import ANSWER_RESERVE_TOKENS
from tests.engine.commands import end, hush, respond, user_item
from tests.engine.fakes import Bench

EITHER_BACKEND = True
LONG = api.Sampling(repetition_penalty=1.0, max_tokens=4_000)


def failures(bench: Bench) -> list[str]:
    return [event.code for event in bench.events if isinstance(event, api.Failed)]


def test_the_oldest_items_go_when_the_context_is_full() -> None:
    """A conversation longer than the context goes on without its beginning, system prompt kept."""
    bench = Bench(reply=lambda _: "yes", limit=900)
    bench.open()
    for i in range(40):
        bench.tell(api.AddItem("s", user_item(f"u{i}", f"message number {i} is rather long")))
        bench.run()
    bench.tell(respond())
    bench.run()
    assert bench.finished().reason is api.FinishReason.STOP
    text = bench.stream_text()
    assert text.startswith("<S>Hi</><U>")
    assert "message number 39 " in text
    assert "message number 0 " not in text


@pytest.mark.our_decoder("moves K/V")
def test_forgetting_costs_no_prefill() -> None:
    """What is left keeps its place in the cache: in a conversation ten windows long every token
    is prefilled once, and none is thrown away."""
    bench = Bench(reply=lambda _: "yes")
    bench.open()
    bench.tell(api.Remember("s", api.Window(300, 0)))
    bench.run()
    for i in range(60):
        bench.tell(api.AddItem("s", user_item(f"u{i}", f"and this is sentence number {i}, then")))
        bench.tell(respond(i + 1))
        bench.run()
        stream = bench.engine.sessions["s"].stream
        assert len(stream) <= 300 + 20
        assert bench.finished(i + 1).reason is api.FinishReason.STOP
    kv = bench.finished(60).kv
    assert kv.evicted > 1000
    assert kv.window == api.Window(300, 75)
    assert stream.rolled_back_kv_tokens == 0
    assert stream.prefilled_tokens == stream.kv_len + kv.evicted
    assert bench.stream_text().startswith("<S>Hi</><U>")
    bench.engine.check_accounting()


def test_endless_speech_is_recognised_on() -> None:
    """An utterance many windows long: its beginning is forgotten while it is spoken, and the end
    of it is answered."""
    words = " ".join(f"word{i}" for i in range(400))
    bench = Bench(script=words, reply=lambda asked: asked[-15:], limit=900)
    bench.open()
    bench.say(words=400)
    bench.tell(end(), respond())
    bench.run()
    assert not bench.of(api.Failed)
    assert bench.finished().text == "word398 word399"
    stream = bench.engine.sessions["s"].stream
    assert stream.evicted_tokens > 1500
    assert "word0 " not in bench.stream_text()


def test_pictures_never_crowd_out_words() -> None:
    """A camera nobody speaks about for thousands of frames: the newest are remembered, the table of
    embeddings does not fill up, and what was said before is still there."""
    bench = Bench(limit=900)
    bench.open()
    bench.tell(api.AddItem("s", user_item("u", "my name is Ada")), respond())
    bench.run()
    for i in range(1500):
        picture = api.Image(1, 1, bytes((i % 256, 0, 0)))
        bench.tell(api.AddItem("s", api.Item(f"p{i}", api.Role.USER, (picture,))))
        bench.run()
    assert not bench.of(api.Failed)
    kinds = bench.engine.sessions["s"].stream.kv_kinds
    assert kinds.count(Modality.IMAGE) <= (900 - 512) // 4
    assert "my name is Ada" in bench.stream_text()


def test_an_item_that_was_forgotten_can_still_be_named() -> None:
    """To the client it is there: it may remove it, or put something behind it."""
    bench = Bench(limit=900)
    bench.open()
    for i in range(40):
        bench.tell(api.AddItem("s", user_item(f"u{i}", f"message number {i} is rather long")))
        bench.run()
    bench.tell(api.RemoveItem("s", "u0"), api.AddItem("s", user_item("x", "first"), "u1"))
    bench.run()
    assert not bench.of(api.Failed)
    assert "<U>first" in bench.stream_text()
    bench.tell(api.RemoveItem("s", "u0"))
    bench.run()
    assert failures(bench) == ["unknown_item"]


def test_an_item_longer_than_the_context_is_refused() -> None:
    """By name, with both numbers, and the conversation is as it was."""
    bench = Bench(limit=900)
    bench.open()
    bench.tell(api.AddItem("s", user_item("u", "long " * 100)))
    bench.run()
    assert failures(bench) == ["context_full"]
    assert bench.stream_text() == "<S>Hi</>"


ENDLESS = api.Sampling(max_tokens=10_000, repetition_penalty=1.0)
GENERATED, USER = api.Role.ASSISTANT, api.Role.USER


def respond_endlessly(generation: int, **own: Any) -> api.Respond:
    return api.Respond("s", generation, f"a{generation}", ENDLESS, **own)


def spoken(bench: Bench) -> None:
    bench.say()
    bench.tell(hush())
    bench.run()
    bench.tell(end())


def typed(bench: Bench) -> None:
    bench.tell(api.AddItem("s", user_item("u", "tell me everything")))


def called(bench: Bench) -> None:
    """A tool and what it gave, which fills most of the window."""
    typed(bench)
    call = api.Item("c", GENERATED, (api.ToolCall("look", "{}"),))
    bench.tell(api.AddItem("s", call))
    bench.tell(api.AddItem("s", api.Item("r", USER, (api.ToolResult("q" * 300),))))


def shown(bench: Bench) -> None:
    bench.tell(api.AddItem("s", api.Item("p", USER, (api.Image(1, 1, bytes(3)), api.Text("?")))))


@pytest.mark.parametrize("ask", [typed, spoken, called, shown])
def test_an_answer_that_filled_its_session_can_be_followed_by_another(
    ask: Callable[[Bench], None],
) -> None:
    """And another: each has the room an answer needs, at the cost of what was said first, and ends
    by length. The instructions stay, and with them what was said last."""
    letters = "".join(chr(ord("a") + i % 26) for i in range(9000))
    bench = Bench(reply=lambda _: letters, limit=900)
    bench.open()
    ask(bench)
    bench.tell(respond_endlessly(1))
    bench.run()
    for generation in (2, 3, 4):
        bench.tell(respond_endlessly(generation))
        bench.run()
        answer = bench.finished(generation)
        assert (answer.reason, answer.code) == (api.FinishReason.LENGTH, "")
        assert answer.usage.output >= ANSWER_RESERVE_TOKENS
        assert bench.stream_text().startswith("<S>Hi</>")
        assert bench.stream_text().endswith(answer.text[-100:] + "</>")
    assert not bench.of(api.Failed)
    assert bench.engine.sessions["s"].stream.evicted_tokens > 1500


def test_an_answers_instructions_evict_the_oldest_items() -> None:
    """Where both do not fit beside an answer, turns go for them; and they were for that answer
    alone."""
    bench = Bench(reply=lambda _: "yes", limit=900)
    bench.open()
    for i in range(6):
        bench.tell(api.AddItem("s", user_item(f"u{i}", f"message {i} " + 40 * "x")), respond(i))
        bench.run()
    bench.tell(respond_endlessly(9, instructions="rhyme " * 50))
    bench.run()
    assert bench.finished(9).reason is api.FinishReason.STOP
    assert "message 5" in bench.stream_text()
    assert "message 0" not in bench.stream_text()
    assert "rhyme" not in bench.stream_text()


def test_a_speculated_answer_gives_way_to_one_with_long_instructions() -> None:
    """What was begun before the endpoint did not know of them: their room is made all the same."""
    bench = Bench(reply=lambda _: "yes", limit=900)
    bench.open()
    bench.tell(api.AddItem("s", user_item("u", "old " * 80)), respond(1))
    bench.run()
    spoken(bench)
    bench.tell(respond_endlessly(2, instructions="rhyme " * 40))
    bench.run()
    assert bench.finished(2).reason is api.FinishReason.STOP
    assert "old" not in bench.stream_text()
    assert "capital of france" in bench.stream_text()


def test_instructions_that_do_not_fit_change_nothing() -> None:
    """They are refused by name, and all is remembered that was."""
    bench = Bench(reply=lambda _: "yes", limit=900)
    bench.open()
    typed(bench)
    bench.tell(respond_endlessly(1, instructions="rhyme " * 200))
    bench.run()
    assert (bench.finished(1).reason, bench.finished(1).code) == (
        api.FinishReason.FAILED,
        "context_full",
    )
    assert "tell me everything" in bench.stream_text()
    bench.tell(respond(2))
    bench.run()
    assert bench.finished(2).reason is api.FinishReason.STOP


def test_beside_the_conversation_the_newest_items_are_answered() -> None:
    """An answer out of band reads what fits of its input, whole turns from the newest back, and
    the conversation is as it was."""
    asked: list[str] = []

    def reply(question: str) -> str:
        asked.append(question)
        return "yes"

    bench = Bench(reply=reply, limit=900)
    bench.open()
    typed(bench)
    bench.run()
    before = bench.stream_text()
    items = [
        item
        for i in range(20)
        for item in (
            user_item(f"q{i}", f"question {i} " + "k" * 50),
            api.Item(f"a{i}", GENERATED, (api.Text("no"),)),
        )
    ]
    bench.tell(respond_endlessly(1, items=(*items, user_item("q", "and now?"))))
    bench.run()
    assert bench.finished(1).reason is api.FinishReason.STOP
    assert 300 < bench.finished(1).usage.input <= 900 - ANSWER_RESERVE_TOKENS
    assert asked[-1] == "and now?"
    assert bench.stream_text() == before


def test_beside_the_conversation_an_answer_that_filled_it_can_be_named() -> None:
    """Its end is read; a question that is too long by itself is refused."""
    bench = Bench(reply=lambda _: "yes", limit=900)
    bench.open()
    said = api.Item("a", GENERATED, (api.Text("so it goes " * 80),))
    bench.tell(respond_endlessly(1, items=(said, user_item("q", "Why?"))))
    bench.tell(respond_endlessly(2, items=(user_item("q", "Why?"), said)))
    bench.tell(respond_endlessly(3, items=(user_item("q", "why " * 100),)))
    bench.run()
    assert [bench.finished(i).code for i in (1, 2, 3)] == ["", "", "context_full"]
    assert bench.finished(2).usage.input > 250


def test_a_small_answer_beside_the_conversation_has_nothing_forgotten_for_it() -> None:
    """Only as much room is kept free as it may take."""
    bench = Bench(reply=lambda _: "yes", limit=900)
    bench.open()
    items = (user_item("a", "k" * 400), user_item("b", "k" * 400))
    short = api.Sampling(max_tokens=8, repetition_penalty=1.0)
    bench.tell(api.Respond("s", 1, "a1", short, items=items))
    bench.run()
    assert bench.finished(1).usage.input > 800


def test_a_conversation_is_restored_with_the_end_of_an_answer_that_filled_it() -> None:
    """It was said here: after a restart it is no failure, and what was asked behind it is there."""
    bench = Bench(reply=lambda _: "yes", limit=900)
    said = api.Item("a", GENERATED, (api.Text("so it goes on " * 60 + "and ends."),))
    bench.tell(api.Open("s", "Hi", (user_item("u", "Tell me."), said)))
    bench.run()
    assert not bench.of(api.Failed)
    assert bench.stream_text().endswith("and ends.</>")
    bench.tell(respond())
    bench.run()
    assert bench.finished().reason is api.FinishReason.STOP


def test_a_conversation_is_restored_without_what_is_too_long_now() -> None:
    """It was said when more was remembered: after a restart that item is told as failed, and the
    session is there with all others."""
    bench = Bench(limit=900)
    items = (user_item("a", "short"), user_item("b", "long " * 70), user_item("c", "shorter"))
    bench.tell(api.Open("s", "Hi", items, window=api.Window(100)))
    bench.run()
    assert failures(bench) == ["context_full"]
    assert bench.stream_text() == "<S>Hi</><U>short\nshorter"


@pytest.mark.our_decoder("keeps K/V in a pool")
@pytest.mark.parametrize("summarise", [False, True])
def test_a_conversation_longer_than_the_pool_goes_on(summarise: bool) -> None:
    """Where a model's context is longer than the memory for K/V, the oldest turns make room: no
    answer ever fails for want of blocks, and the instructions stay, of which eviction keeps a copy.
    """
    bench = Bench(reply=lambda _: "yes", blocks=64, held=64 * 16)
    bench.tell(api.Open("s", "Be brief." * 12, window=api.Window(0, summarise=summarise)))
    for i in range(60):
        said = f"and this is sentence number {i}, " * 3
        bench.tell(api.AddItem("s", user_item(f"u{i}", said)), respond(i + 1))
        bench.run()
        assert bench.finished(i + 1).reason is api.FinishReason.STOP
    assert not bench.of(api.Failed)
    assert bench.engine.sessions["s"].stream.evicted_tokens > 3 * 64 * 16
    assert bench.stream_text().startswith("<S>Be brief.")


@pytest.mark.our_decoder("keeps K/V in a pool")
def test_an_answer_as_long_as_the_pool_ends_where_memory_does() -> None:
    """Once something was evicted the copy of the instructions takes memory too: the answer is cut
    short, as at the context's end, and does not fail for want of blocks."""
    length = 3
    bench = Bench(reply=lambda _: "w" * length, blocks=64, limit=64 * 16, held=64 * 16)
    bench.tell(api.Open("s", "Be brief." * 4))
    for i in range(20):
        bench.tell(api.AddItem("s", user_item(f"u{i}", f"and this is sentence number {i}")))
        bench.tell(respond(i + 1, sampling=LONG))
        bench.run()
    assert bench.engine.sessions["s"].stream.evicted_tokens
    for i in (20, 21, 22):
        length = 2_000
        bench.tell(api.AddItem("s", user_item(f"u{i}", "go on")), respond(i + 1, sampling=LONG))
        bench.run()
        assert bench.finished(i + 1).reason is api.FinishReason.LENGTH
        length = 3
        bench.tell(api.AddItem("s", user_item(f"v{i}", "stop")), respond(i + 100, sampling=LONG))
        bench.run()
        assert bench.finished(i + 100).reason is api.FinishReason.STOP
    assert not bench.of(api.Failed)


def test_a_window_smaller_than_any_message_is_not_blamed_on_the_instructions() -> None:
    """The error has the length of the message, and that nothing is allowed."""
    bench = Bench()
    bench.tell(api.Open("s", "Hi", window=api.Window(1)))
    bench.tell(api.AddItem("s", user_item("u", "Hello")))
    bench.run()
    (failed,) = bench.of(api.Failed)
    assert isinstance(failed, api.Failed)
    assert failed.message == "the session would hold 5 tokens; its limit is 0"


def test_instructions_without_room_for_more_are_named() -> None:
    """The error says what is too long, in tokens, rather than what had no room beside it."""
    bench = Bench(limit=900)
    bench.open(instructions="x" * 897)
    bench.tell(api.AddItem("s", user_item("u", "Hi")), respond())
    bench.run()
    (failed,) = bench.of(api.Failed)
    assert isinstance(failed, api.Failed)
    assert failed.code == bench.finished().code == "context_full"
    for message in (failed.message, bench.finished().message):
        assert "the instructions and tools take " in message
        assert "expected shorter ones" in message
