"""The local backend by itself: what it does in a step, and what it leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headstart.engine import api
from headstart.engine.backends.local import HOLD_NS, LocalBackend
from headstart.engine.engine import Backend
from headstart.engine.errors import CacheFull
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.scheduler import Scheduler
from headstart.engine.session.recognition import PassSharing
from headstart.engine.session.session import NewStream
from tests.engine.commands import GREEDY, respond, user_item
from tests.engine.fakes import USER_END, VOCAB, Bench


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


def test_a_failed_answer_leaves_nothing_that_no_step_takes() -> None:
    """An answer fails for want of room in a step of nothing else. What is to be read of it is added
    then, and the engine must not wait with that for the next command."""
    bench = Bench(reply=lambda _: "x" * 500, blocks=4)
    bench.open()
    bench.tell(api.AddItem("s", user_item("u", "hello")), respond(sampling=GREEDY))
    while bench.engine.step():
        pass
    assert bench.finished().code == "cache_full"
    assert bench.engine.sessions["s"].at_rest
    bench.engine.check_accounting()


def test_a_stream_closed_by_anothers_failure_is_not_failed_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer and a summary do not fit. The end of the answer drops the summary, which costs the
    conversation no tokens, and nothing of it is planned."""
    bench.open()
    bench.tell(api.AddItem("s", user_item("u", "hello")), respond(sampling=GREEDY))
    while not bench.text():
        bench.engine.step()
    session = bench.engine.sessions["s"]
    summary = session._summaries.begin(session.stream)
    session.side_answers.append(summary)
    full = CacheFull(1, 0)
    refused = {session.stream: full, summary.stream: full}
    monkeypatch.setattr(bench.admission, "refuse", lambda *_: refused)
    monkeypatch.setattr(session.conversation, "is_full", lambda *_: True)
    bench.engine.step()
    assert summary.stream.closed
    assert bench.finished().code == "cache_full"
    assert not bench.of(api.Failed)


CHUNK_NS = 500_000_000
CHUNK_BYTES = bytes(16_000)


class HoldingBench(Bench):
    """One chunk in a pass of the recogniser, and words that wait for sound that waits."""

    def make_backend(self, limit: int) -> tuple[Backend, NewStream]:
        backend = LocalBackend(
            self.runner, Scheduler(64), self.admission, USER_END, self._clock, holds=True
        )
        return backend, lambda name: Stream(name, self.pool, VOCAB, limit)


@pytest.fixture
def speakers() -> HoldingBench:
    """Three sessions, each with a chunk that came just now."""
    bench = HoldingBench()
    bench.engine.parts = replace(bench.engine.parts, heard_together=PassSharing())
    for name in ("s", "t", "u"):
        bench.open(name)
    for name in ("s", "t", "u"):
        bench.tell(api.BeginSpeech(name, api.TurnRef(1), "i", 0))
    while bench.engine.step():
        pass
    for name in ("s", "t", "u"):
        bench.tell(api.Audio(name, api.TurnRef(1), 0, CHUNK_BYTES, bench.now_ns))
    return bench


def pending(bench: Bench) -> list[bool]:
    """Of each session, whether words of its chunk are heard and not in the cache."""
    return [session.stream.pending_ahead > 0 for session in bench.engine.sessions.values()]


def test_words_wait_for_sound_that_waits(speakers: HoldingBench) -> None:
    """Three chunks are heard one by one, and their words are prefilled in one step."""
    seen = []
    before = speakers.runner.rows
    for _ in range(3):
        assert speakers.engine.step()
        seen.append((pending(speakers), speakers.runner.rows > before))
    assert seen == [
        ([True, False, False], False),
        ([True, True, False], False),
        ([False, False, False], True),
    ]
    assert len(speakers.of(api.Chunk)) == 3


def test_words_wait_no_longer_than_the_hold(speakers: HoldingBench) -> None:
    """Sound still waits, but the words have waited long enough."""
    speakers.engine.step()
    speakers.now_ns += HOLD_NS
    speakers.engine.step()
    assert pending(speakers) == [False, False, False]
    assert speakers.engine.sessions["u"].commands.next_is_audio


def test_a_chunk_that_is_due_waits_for_nobody(speakers: HoldingBench) -> None:
    """With little time left its words are prefilled at once; late already, they may wait."""
    speakers.now_ns += CHUNK_NS - HOLD_NS
    speakers.engine.step()
    assert pending(speakers) == [False, False, False]
    assert speakers.engine.sessions["t"].commands.next_is_audio
    speakers.now_ns += CHUNK_NS
    speakers.engine.step()
    assert pending(speakers) == [False, True, False]


def test_words_do_not_wait_beside_an_answer(speakers: HoldingBench) -> None:
    """A step of its answer comes anyway, and takes them along."""
    speakers.tell(api.Open("v", "Hi"), respond(session="v", sampling=GREEDY))
    speakers.engine.step()
    while speakers.engine.sessions["t"].commands.next_is_audio:
        assert pending(speakers) == [False, False, False, True] or not any(pending(speakers))
        speakers.engine.step()
    assert not any(pending(speakers)[:3])
