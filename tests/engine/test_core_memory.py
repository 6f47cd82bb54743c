"""Sessions that outgrow their window: what they forget, and what it costs."""

from __future__ import annotations

from engine import api
from engine.books import Modality
from tests.engine.fakes import Bench
from tests.engine.test_core import end, respond, user_item


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
    bench.engine.check_books()


def test_one_person_who_never_stops_is_heard_on() -> None:
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


def test_hours_of_pictures_leave_room_for_words() -> None:
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


def test_a_conversation_is_restored_without_what_is_too_long_now() -> None:
    """It was said when more was remembered: after a restart that item is told as failed, and the
    session is there with all others."""
    bench = Bench(limit=900)
    items = (user_item("a", "short"), user_item("b", "long " * 70), user_item("c", "shorter"))
    bench.tell(api.Open("s", "Hi", items, window=api.Window(100)))
    bench.run()
    assert failures(bench) == ["context_full"]
    assert bench.stream_text() == "<S>Hi</><U>short\nshorter"
