"""The place of a running answer's items in the conversation, and changes to them."""

from __future__ import annotations

from headstart.engine import api
from tests.engine.fakes import Bench
from tests.engine.test_engine_tools import CALL, SAMPLING, WEATHER, bench_with

EITHER_BACKEND = True


def user(item_id: str, text: str = "x") -> api.Item:
    return api.Item(item_id, api.Role.USER, (api.Text(text),))


def running(reply: str = "Yes.") -> Bench:
    """An answer whose first letters were sent."""
    bench = bench_with(WEATHER, reply=lambda _: reply)
    bench.tell(api.AddItem("s", user("a", "A")), api.AddItem("s", user("b", "B")))
    bench.tell(api.Respond("s", 1, "r", SAMPLING))
    while not bench.of(api.Delta) and not bench.of(api.Call):
        bench.engine.step()
    return bench


def test_it_stands_behind_what_it_has_read() -> None:
    """Whatever is removed before it, or added behind or before it."""
    bench = running()
    bench.tell(api.RemoveItem("s", "a"), api.AddItem("s", user("c", "C")))
    bench.tell(api.AddItem("s", user("d", "D"), "r"), api.AddItem("s", user("e", "E"), "b"))
    bench.run()
    assert not bench.of(api.Failed)
    read = bench.stream_text().split("</>", 1)[1]
    assert read == "<U>B\nE</U><A>Yes.</><U>D\nC"


def test_it_may_be_removed_while_it_runs() -> None:
    """Then no part of it is added to the conversation."""
    bench = running()
    bench.tell(api.RemoveItem("s", "r"))
    bench.run()
    assert not bench.of(api.Failed)
    assert bench.stream_text().endswith("<U>A\nB")


def test_a_call_may_be_named_as_soon_as_it_is_told() -> None:
    """While the answer continues; the next call comes behind what was inserted after the first."""
    bench = running(CALL + CALL)
    while not [event for event in bench.of(api.Call) if event.done]:  # type: ignore[union-attr]
        bench.engine.step()
    first = api.call_item_id("r", 0)
    bench.tell(api.AddItem("s", user("c", "C"), first), api.RemoveItem("s", first))
    bench.run()
    assert not bench.of(api.Failed)
    assert bench.stream_text().endswith(f"<U>A\nB\nC</U><A>{CALL}</>")


def test_an_answer_that_says_nothing_leaves_nothing() -> None:
    """An answer cancelled before its first word leaves no item."""
    bench = bench_with(WEATHER, reply=lambda _: "Yes.")
    long = "A" * 500  # several steps of prefill
    bench.tell(api.AddItem("s", user("a", long)), api.Respond("s", 1, "r", SAMPLING))
    bench.engine.step()
    bench.engine.step()
    assert bench.engine.sessions["s"].answer is not None
    bench.tell(api.Cancel("s", 1))
    bench.run()
    assert bench.finished().text == ""
    assert bench.stream_text().endswith(f"<U>{long}")
    bench.tell(api.RemoveItem("s", "r"))
    bench.run()
    assert [event.code for event in bench.of(api.Failed)] == ["unknown_item"]  # type: ignore[union-attr]
