"""Sessions behind an LLM server with little room: summaries that are dropped as their words come,
and an account of K/V that is smaller than they need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headstart.engine import api
from headstart.engine.backends.llm_server.http_client import Arrived, Outcome
from headstart.engine.session.summary import REQUEST
from tests.engine.backends.llm_server.bench import ServerBench
from tests.engine.commands import respond, user_item


def reply(asked: str) -> str:
    return "Ada has a dog." if REQUEST in asked else "yes"


@contextmanager
def bench_of(**settings: Any) -> Iterator[ServerBench]:
    bench = ServerBench(reply=reply, **settings)
    try:
        yield bench
    finally:
        bench.close()


def delay_summaries(bench: ServerBench) -> None:
    """Hand out what came of a summary only behind the end of an answer, in the same step, or when
    nothing else is awaited."""
    backend, take = bench.backend, bench.backend.client.take
    held: list[Outcome] = []

    def is_silent(call: int) -> bool:
        run = backend._runs.get(call)
        return run is not None and run.answer is not None and run.answer.silent

    def taken() -> list[Outcome]:
        now: list[Outcome] = []
        for outcome in take():
            (held if is_silent(outcome.call) else now).append(outcome)
        answer = bench.engine.sessions["s"].answer
        ends = [run.answer for call, run in backend._runs.items() if is_end(call, now)]
        alone = answer is None and all(map(is_silent, backend._runs))
        if alone or (answer is not None and any(end is answer for end in ends)):
            now += held
            held.clear()
        return now

    def is_end(call: int, now: list[Outcome]) -> bool:
        return any(o.call == call and not isinstance(o, Arrived) for o in now)

    bench.backend.client.take = taken  # type: ignore[method-assign]


@pytest.mark.parametrize("window", [188, 212, 224])
def test_the_end_of_an_answer_drops_a_summary_whose_words_came_with_it(window: int) -> None:
    """Both are taken in one step: what came of the summary is discarded, and the engine goes on
    for all sessions. Later summaries are kept."""
    with bench_of() as bench:
        delay_summaries(bench)
        bench.tell(api.Open("s", "Hi", window=api.Window(window, summarise=True)))
        dropped = 0
        for i in range(40):
            bench.tell(api.AddItem("s", user_item(f"u{i}", f"and this is question number {i}")))
            bench.tell(respond(i + 1))
            bench.run()
            dropped = bench.backend.totals.report().cancelled.get("answer", 0)
            assert bench.finished(i + 1).reason is api.FinishReason.STOP
        assert dropped
        assert not bench.of(api.Failed)


def test_an_account_that_is_too_small_fails_no_answer_and_refuses_nobody() -> None:
    """The K/V are the server's, and so is the decision what to keep: with an account of twelve
    blocks eight sessions of fifty are opened, told nothing of memory, and answered."""
    names = [f"s{n}" for n in range(8)]
    with bench_of(blocks=12) as bench:
        for name in names:
            bench.open(name)
        for turn, name in enumerate([*names, *names], 1):
            bench.tell(api.AddItem(name, user_item(f"u{turn}", "x" * 400)))
            bench.tell(respond(turn, name))
            bench.run()
            assert bench.finished(turn).reason is api.FinishReason.STOP
        assert not bench.of(api.Failed)
        assert not bench.of(api.Pressure)
        for name in names:
            bench.tell(api.Close(name))
        bench.run()
        assert bench.pool.used_blocks == 0
