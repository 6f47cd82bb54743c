"""Passes in pieces in a thread beside the steps: who leaves it for whom, and who comes back."""

from __future__ import annotations

import random

import pytest

from headstart.engine import api
from tests.engine.fakes import Bench, FakeRecognizer, echo
from tests.engine.session.test_passes_in_pieces import (
    PIECES,
    QUESTION,
    PieceByPiece,
    end,
    hear,
    heard,
    log_of,
    state_of,
)
from tests.engine.session.test_recognition import HandWorker, lives, run, said


@pytest.fixture
def worker() -> HandWorker:
    return HandWorker()


@pytest.fixture
def bench(worker: HandWorker) -> Bench:
    bench = Bench(recognizer=PieceByPiece(), worker=worker)
    for name in ("s", "t"):
        bench.open(name)
        bench.tell(api.BeginSpeech(name, api.TurnRef(1), f"u-{name}", 0))
    hear(bench, "s")
    run(bench, worker)
    return bench


def test_a_turn_that_ends_has_the_thread_before_anothers_chunk(
    bench: Bench, worker: HandWorker
) -> None:
    """The pass leaves at its next piece, and goes on behind the final one; the words are those they
    would have been."""
    before = len(log_of(bench))
    hear(bench, "t")
    bench.run()
    bench.tell(*end("s"))
    s, t = state_of(bench, "s"), state_of(bench, "t")
    run(bench, worker)
    assert log_of(bench)[before:] == [t, *[s] * PIECES, *[t] * (PIECES - 1)]
    assert heard(bench)[-2:] == ["s", "t"]
    assert bench.stream_text("t") == "<S>Hi</><U>what si"


def test_other_chunks_wait_for_the_pass_in_the_thread(bench: Bench, worker: HandWorker) -> None:
    """One that came later is due later."""
    before = len(log_of(bench))
    hear(bench, "t")
    bench.run()
    hear(bench, "s", 1)
    s, t = state_of(bench, "s"), state_of(bench, "t")
    run(bench, worker)
    assert log_of(bench)[before:] == [t] * PIECES + [s] * PIECES


def test_a_pass_that_left_the_thread_is_forgotten_with_its_session(
    bench: Bench, worker: HandWorker
) -> None:
    """Nobody wants the rest of it."""
    before = len(log_of(bench))
    hear(bench, "t")
    bench.run()
    bench.tell(*end("s"))
    t = state_of(bench, "t")
    bench.run()
    worker.finish()
    bench.tell(api.Close("t"))
    run(bench, worker)
    assert log_of(bench)[before:].count(t) == 1
    assert not bench.engine.is_recognising
    assert bench.text() == echo("what is")


def test_the_engine_closes_with_a_pass_that_left_the_thread(
    bench: Bench, worker: HandWorker
) -> None:
    """It is closed too, though the thread has none."""
    hear(bench, "t")
    bench.run()
    bench.tell(*end("s"))
    bench.run()
    worker.finish()
    bench.close()
    assert not bench.engine.is_recognising


@pytest.mark.parametrize("seed", range(40))
def test_sessions_hear_and_answer_the_same_beside_in_pieces_and_within(seed: int) -> None:
    """In random orders of steps and pieces, streams included."""
    worker, chance = HandWorker(), random.Random(seed)
    within = Bench(recognizer=FakeRecognizer(QUESTION))
    beside = Bench(recognizer=PieceByPiece(), worker=worker)
    lives(seed, within, within.run)
    within.run()

    def step() -> None:
        for _ in range(chance.randint(0, 3)):
            beside.engine.step()
        if worker.waiting and chance.random() < 0.5:
            worker.finish()

    lives(seed, beside, step)
    run(beside, worker)
    assert said(beside) == said(within)
    for name in ("s", "t", "u"):
        assert beside.stream_text(name) == within.stream_text(name)
