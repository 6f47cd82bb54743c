"""Summaries of what is evicted."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.engine.session.summary import OPENING, REQUEST
from tests.engine.commands import end, respond, user_item
from tests.engine.fakes import Bench

EITHER_BACKEND = True


def reply(asked: str) -> str:
    """The fake model sees the last user message and what follows it."""
    return "Ada has a dog." if REQUEST in asked else "yes"


def chatting(turns: int, *, summarise: bool = True, blocks: int = 256, window: int = 600) -> Bench:
    """A conversation of `turns` turns, some 60 tokens each, in a window of so many tokens."""
    bench = Bench(reply=reply, blocks=blocks)
    bench.tell(api.Open("s", "Hi", window=api.Window(window, summarise=summarise)))
    for i in range(turns):
        text = "my name is Ada and I have a dog" if i == 0 else f"and this is question number {i}"
        bench.tell(api.AddItem("s", user_item(f"u{i}", text)), respond(i + 1))
        bench.run()
    return bench


def test_what_is_forgotten_is_noted_first() -> None:
    """Long after the first turn was evicted its summary is read, and later a newer one."""
    bench = chatting(60)
    text = bench.stream_text()
    assert "my name is Ada" not in text
    assert f"<S>{OPENING}Ada has a dog.</>" in text
    assert REQUEST not in text
    assert not bench.of(api.Failed)


def test_a_summary_sends_no_events() -> None:
    """The client receives its own answers only; without the setting no summary is written."""
    bench = chatting(60)
    assert {e.generation for e in bench.events if isinstance(e, api.Delta)} == set(range(1, 61))
    assert [e.generation for e in bench.events if isinstance(e, api.Finished)] == list(range(1, 61))
    assert OPENING not in chatting(60, summarise=False).stream_text()


@pytest.mark.our_decoder("counts its rows")
def test_it_costs_no_second_prefill() -> None:
    """It is written on a fork that shares the conversation's K/V, and added at the end."""
    with_notes, without = chatting(60), chatting(60, summarise=False)
    stream, other = (b.engine.sessions["s"].stream for b in (with_notes, without))
    assert stream.rolled_back_kv_tokens == other.rolled_back_kv_tokens == 0
    summaries = with_notes.runner.rows - without.runner.rows
    evictions = stream.evicted_tokens // 150
    assert 0 < summaries < (evictions + 2) * (len(REQUEST) + 4 * len(OPENING))
    assert with_notes.pool.used_blocks == len(stream.kv_blocks)


def test_a_summary_waits_while_somebody_speaks() -> None:
    """The utterance keeps its place in the cache; the summary comes behind the answer to it."""
    bench = chatting(14)
    ref = api.TurnRef(1)
    bench.tell(api.BeginSpeech("s", ref, "spoken", 0))
    while not bench.engine.sessions["s"].side_answers:
        bench.tell(api.Audio("s", ref, 0, bytes(8_000), bench.now_ns))
        bench.engine.step()
        bench.recognizer.words.append("more")
    before = bench.engine.sessions["s"].stream.rolled_back_kv_tokens
    bench.run()
    assert OPENING not in bench.stream_text()
    bench.tell(end(), respond(99))
    bench.run()
    assert bench.stream_text().endswith(f"<A>yes</><S>{OPENING}Ada has a dog.</>")
    assert bench.engine.sessions["s"].stream.rolled_back_kv_tokens - before < 20


def test_a_summary_does_not_stand_in_the_way_of_forgetting() -> None:
    """With blocks for one window only the summary is dropped in time: nothing fails, and nothing of
    the conversation is recomputed."""
    bench = chatting(60, blocks=48)
    stream = bench.engine.sessions["s"].stream
    assert not bench.of(api.Failed)
    assert stream.rolled_back_kv_tokens == 0
    assert stream.evicted_tokens > 1000


@pytest.mark.parametrize("window", [188, 212, 224])
def test_a_summary_may_be_dropped_in_the_step_that_writes_it(window: int) -> None:
    """An answer ends in the same step, and its words take the blocks that the summary holds. (Over
    an LLM server that depends on what comes first: see `llm_server/test_account.py`.)"""
    bench = chatting(40, blocks=48, window=window)
    assert not bench.of(api.Failed)
    assert len(bench.of(api.Finished)) == 40


def test_notes_do_not_outlive_what_they_tell_of() -> None:
    """If an item is removed that was evicted, precedes a summary, or is read by one being written,
    that summary goes too, and another is made. Items behind a summary do not affect it."""
    bench = chatting(60)
    assert OPENING in bench.stream_text()
    bench.tell(api.RemoveItem("s", "a60"))
    bench.run()
    assert OPENING in bench.stream_text()
    bench.tell(api.RemoveItem("s", "u0"))  # the first of all, gone for long
    bench.run()
    assert OPENING not in bench.stream_text()
    bench = chatting(13)
    number = 13
    while not bench.engine.sessions["s"].side_answers:
        bench.tell(api.AddItem("s", user_item(f"u{number}", "and one more")))
        bench.engine.step()
        number += 1
    bench.tell(api.RemoveItem("s", f"u{number - 1}"))
    bench.engine.step()
    assert not bench.engine.sessions["s"].side_answers
    bench.run()
    assert not bench.of(api.Failed)
