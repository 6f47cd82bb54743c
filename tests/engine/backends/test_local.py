"""The local backend by itself: what it does in a step, and what it leaves."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.engine.backends.local import LocalBackend
from headstart.engine.scheduling.scheduler import Scheduler
from tests.engine.fakes import USER_END, Bench
from tests.engine.test_engine import GREEDY, respond, user_item


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_without_pending_tokens_there_is_no_step(bench: Bench) -> None:
    """No session, and a session whose tokens are all in the cache, want none."""
    backend = LocalBackend(
        bench.runner, Scheduler(64), bench.admission, USER_END, lambda: bench.now_ns
    )
    assert backend.step([]) is None
    bench.open()
    assert backend.step(list(bench.engine.sessions.values())) is None


def test_a_step_says_for_whom_it_worked(bench: Bench) -> None:
    """Streams, prefilled and decoded tokens of one step for two sessions."""
    backend = bench.engine.parts.backend
    bench.tell(api.Open("s", "Hi"), api.Open("t", "Hello"))
    bench.engine._carry_out_commands()
    sessions = list(bench.engine.sessions.values())
    work = backend.step(sessions)
    assert work is not None
    assert work.streams == {session.stream for session in sessions}
    assert (work.prefill_tokens, work.decode_tokens) == (4 + 7, 0)
    bench.tell(api.AddItem("s", user_item("u", "hello")), respond(sampling=GREEDY))
    while not bench.text():
        bench.engine.step()
    last = backend.step(sessions)
    assert last is not None
    assert (last.prefill_tokens, last.decode_tokens) == (0, 1)
