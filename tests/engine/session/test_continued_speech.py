"""An utterance that ended too early and goes on: one message, whatever was answered in between."""

from __future__ import annotations

import pytest

from headstart.engine import api
from tests.engine.fakes import WORD_SAMPLES, Bench
from tests.engine.test_engine_tools import CALL, SAMPLING, WEATHER, bench_with

GREEDY = api.Sampling(repetition_penalty=1.0, max_tokens=80)
FIRST, SECOND = api.TurnRef(1), api.TurnRef(2)
WHOLE = "what is the capital of france"


def ended_early(bench: Bench, words: int = 3) -> None:
    """The first words of the script end as "u1"."""
    bench.open()
    bench.say(words=words)
    bench.tell(api.Hush("s", FIRST, words * WORD_SAMPLES, GREEDY))
    bench.run()
    bench.tell(api.EndSpeech("s", FIRST, words * WORD_SAMPLES, may_continue=True))
    bench.run()


def go_on(bench: Bench, words: int, answer_id: str = "") -> None:
    """More words, first by themselves, and then as a continuation of "u1"."""
    bench.tell(api.BeginSpeech("s", SECOND, "u2", 8 * WORD_SAMPLES, may_continue=True))
    sound = bytes(2 * WORD_SAMPLES)
    for _ in range(words):
        bench.tell(api.Audio("s", SECOND, 0, sound, bench.now_ns))
    bench.run()
    bench.tell(api.ContinueSpeech("s", SECOND, "u1", answer_id))
    bench.run()


def end(bench: Bench) -> str:
    """The words of the joint utterance."""
    bench.tell(api.EndSpeech("s", SECOND, 0))
    bench.run()
    heard = bench.of(api.Heard)[-1]
    assert isinstance(heard, api.Heard)
    assert (heard.ref, heard.item_id) == (SECOND, "u2")
    return heard.text


def test_both_parts_are_one_message() -> None:
    """The words are those of the sound as a whole, and the model reads one message, not two."""
    bench = Bench()
    ended_early(bench)
    go_on(bench, 3)
    assert end(bench) == WHOLE
    assert bench.stream_text().endswith(f"<U>{WHOLE}")
    bench.tell(api.Respond("s", 1, "a1", GREEDY))
    bench.run()
    assert bench.stream_text().count("<U>") == 1
    assert not bench.of(api.Failed)


def test_what_the_answer_said_is_gone() -> None:
    """An answer that was cancelled while it ran, and one that was over: no token of it is left, nor
    of its calls."""
    bench = Bench()
    ended_early(bench)
    bench.tell(api.Respond("s", 1, "a1", GREEDY))
    while not bench.text():
        bench.engine.step()
    bench.tell(api.Cancel("s", 1))
    go_on(bench, 3, "a1")
    assert end(bench) == WHOLE
    assert bench.stream_text().endswith(f"Hi</><U>{WHOLE}")
    bench.tell(api.Respond("s", 2, "a2", GREEDY))
    bench.run()
    assert bench.text(2) == f"You said: {WHOLE}."


def test_its_calls_are_gone_too() -> None:
    """A complete call and the text before it."""
    bench = bench_with(WEATHER, reply=lambda _: f"Let me see. {CALL}")
    bench.say(words=2)
    bench.tell(api.EndSpeech("s", FIRST, 0, may_continue=True))
    bench.tell(api.Respond("s", 1, "a1", SAMPLING))
    bench.run()
    assert CALL in bench.stream_text()
    go_on(bench, 2, "a1")
    assert end(bench) == "how is the weather"
    assert bench.stream_text().endswith("</><U>how is the weather")


def test_only_the_tail_is_computed_again() -> None:
    """The cached words of the first part stay in the K/V: prefilled are the new ones only."""
    bench = Bench()
    ended_early(bench, words=4)
    bench.tell(api.Respond("s", 1, "a1", GREEDY))
    bench.run()
    bench.tell(api.BeginSpeech("s", SECOND, "u2", 0, may_continue=True))
    bench.run()
    rows = bench.runner.rows
    bench.tell(api.ContinueSpeech("s", SECOND, "u1", "a1"))
    bench.tell(api.Audio("s", SECOND, 0, bytes(4 * WORD_SAMPLES), bench.now_ns))
    bench.run()
    assert bench.stream_text() == "<S>Hi</><U>what is the capital of ecnarf"
    assert bench.runner.rows - rows == len(" of ecnarf")


def test_dropped_it_leaves_the_first_part() -> None:
    """A clear during the continuation: the item is there again, and can be answered."""
    bench = Bench()
    ended_early(bench)
    go_on(bench, 2)
    bench.tell(api.DropSpeech("s", SECOND))
    bench.run()
    assert bench.stream_text().endswith("<U>what is the")
    bench.tell(api.Respond("s", 1, "a1", GREEDY, only_if_heard=True))
    bench.run()
    assert bench.text() == "You said: what is the."


def test_a_cough_in_between_changes_nothing() -> None:
    """An utterance that might have continued and is dropped: the next one still may."""
    bench = Bench()
    ended_early(bench)
    cough = api.TurnRef(9)
    bench.tell(api.BeginSpeech("s", cough, "c", 0, may_continue=True))
    bench.tell(api.Audio("s", cough, 0, bytes(2 * WORD_SAMPLES), bench.now_ns))
    bench.tell(api.DropSpeech("s", cough))
    bench.run()
    go_on(bench, 3)
    assert end(bench) == WHOLE


def test_it_may_be_continued_again_and_again() -> None:
    """Three early ends; each continuation is a new item that holds all the words."""
    bench = Bench()
    bench.open()
    ids = ["u1", "u2", "u3"]
    for number, item_id in enumerate(ids, 1):
        ref = api.TurnRef(number)
        bench.tell(api.BeginSpeech("s", ref, item_id, 0, may_continue=True))
        if number > 1:
            bench.tell(api.ContinueSpeech("s", ref, ids[number - 2]))
        for _ in range(2):
            bench.tell(api.Audio("s", ref, 0, bytes(2 * WORD_SAMPLES), bench.now_ns))
        bench.tell(api.EndSpeech("s", ref, 0, may_continue=True))
        bench.run()
    texts = [heard.text for heard in bench.of(api.Heard) if isinstance(heard, api.Heard)]
    assert texts == ["what is", "what is the capital", WHOLE]
    assert bench.stream_text().endswith(f"Hi</><U>{WHOLE}")


@pytest.mark.parametrize("why", ["not kept", "released", "another", "removed", "not announced"])
def test_what_is_not_kept_cannot_be_continued(why: str) -> None:
    """A named failure, and nothing has changed."""
    bench = Bench()
    bench.open()
    bench.say(words=3)
    bench.tell(api.EndSpeech("s", FIRST, 0, may_continue=why != "not kept"))
    if why == "released":
        bench.tell(api.ReleaseSpeech("s"))
    if why == "removed":
        bench.tell(api.RemoveItem("s", "u1"))
    bench.run()
    may_continue = why != "not announced"
    bench.tell(api.BeginSpeech("s", SECOND, "u2", 0, may_continue=may_continue))
    bench.run()
    before = bench.stream_text()
    bench.tell(api.ContinueSpeech("s", SECOND, "x" if why == "another" else "u1", "a1"))
    bench.run()
    (failed,) = bench.of(api.Failed)
    assert isinstance(failed, api.Failed)
    assert (failed.about, failed.code) == ("continue_speech", "not_continuable")
    assert bench.stream_text() == before


def test_it_does_not_continue_under_an_answer() -> None:
    """An answer that runs has read the first part as a whole message: cancel it first."""
    bench = Bench(reply=lambda _: "a long answer " * 5)
    ended_early(bench)
    bench.tell(api.Respond("s", 1, "a1", GREEDY))
    bench.engine.step()
    bench.tell(api.BeginSpeech("s", SECOND, "u2", 0, may_continue=True))
    bench.tell(api.ContinueSpeech("s", SECOND, "u1", "a1"))
    while not bench.of(api.Failed):
        assert bench.engine.step()
    bench.run()
    assert [event.code for event in bench.of(api.Failed) if isinstance(event, api.Failed)] == [
        "answer_running"
    ]


def test_a_view_of_the_camera_goes_along() -> None:
    """One seen in the first part stays in its place, one of the second stands behind the words that
    were committed by then."""
    bench = Bench()
    bench.open()
    bench.tell(api.Frame("s", 0, api.Image(1, 1, b"\1\0\0")))
    bench.say(words=3)
    bench.tell(api.EndSpeech("s", FIRST, 0, may_continue=True))
    bench.tell(api.BeginSpeech("s", SECOND, "u2", 0, may_continue=True))
    bench.tell(api.Frame("s", 0, api.Image(1, 1, b"\2\0\0")))
    bench.run()
    bench.tell(api.ContinueSpeech("s", SECOND, "u1"))
    for _ in range(3):
        bench.tell(api.Audio("s", SECOND, 0, bytes(2 * WORD_SAMPLES), bench.now_ns))
    bench.run()
    assert end(bench) == WHOLE
    assert bench.stream_text().endswith("<U>#what is# the capital of france")


def test_dropped_it_leaves_the_first_part_in_its_place() -> None:
    """Whatever was inserted before it and behind it meanwhile."""
    bench = Bench()
    ended_early(bench)
    go_on(bench, 2)
    for item_id, text, after in (("x", "before", "root"), ("y", "behind", None)):
        item = api.Item(item_id, api.Role.USER, (api.Text(text),))
        bench.tell(api.AddItem("s", item, after))
    bench.tell(api.DropSpeech("s", SECOND))
    bench.run()
    assert bench.stream_text().endswith("<U>before\nwhat is the\nbehind")


def test_two_hundred_continuations_hold_no_more_than_one() -> None:
    """The books balance, and the stream holds one message's tokens at the end."""
    bench = Bench(script=" ".join(f"w{i}" for i in range(8)), blocks=40, limit=600)
    bench.open()
    stream = bench.engine.sessions["s"].stream
    held = []
    for number in range(1, 201):
        ref, before = api.TurnRef(number), f"u{number - 1}"
        bench.tell(api.BeginSpeech("s", ref, f"u{number}", 0, may_continue=True))
        if number > 1:
            bench.tell(api.ContinueSpeech("s", ref, before, f"a{number - 1}"))
        bench.tell(api.Audio("s", ref, 0, bytes(2 * WORD_SAMPLES), bench.now_ns))
        bench.tell(api.EndSpeech("s", ref, 0, may_continue=True))
        bench.tell(api.Respond("s", number, f"a{number}", GREEDY))
        bench.run()
        held.append((stream.kv_len, len(bench.engine.sessions["s"].conversation)))
    assert held[20:] == [held[20]] * 180
    bench.tell(api.Close("s"))
    bench.run()
    assert bench.pool.used_blocks == 0
