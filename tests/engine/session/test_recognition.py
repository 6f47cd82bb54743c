"""The recogniser's passes beside the engine's steps: who goes on meanwhile, and who waits."""

from __future__ import annotations

import random
import select
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from headstart.engine import api
from headstart.engine.errors import EngineError, KernelFailed, SoftTableFull
from headstart.engine.interfaces import Pcm
from headstart.engine.process.worker_thread import WorkerThread
from tests.engine.fakes import Bench, FakeRecognizer, FakeWords, echo

GREEDY = api.Sampling(repetition_penalty=1.0, max_tokens=2_000)
QUESTION = "what is the capital of france"
CHUNK_SAMPLES = 8_000
PATIENCE_S = 60


class HandWorker:
    """Ends a function when `finish` is called: the thread is as slow as a test wants it to be."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Future[Any]]] = []
        self.closed = False
        self.is_readable = False

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((work, future))
        return future

    def finish(self) -> None:
        (work, future) = self.waiting.pop(0)
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    def wake(self) -> None:
        """As a thread does after it has set a result."""
        self.is_readable = True

    def acknowledge(self) -> None:
        self.is_readable = False

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def worker() -> HandWorker:
    return HandWorker()


@pytest.fixture
def bench(worker: HandWorker) -> Bench:
    bench = Bench(worker=worker)
    for name in ("s", "t"):
        bench.open(name)
    return bench


def begin(bench: Bench, name: str = "s", chunks: int = 1) -> None:
    ref = api.TurnRef(1)
    bench.tell(api.BeginSpeech(name, ref, "u1", 0))
    for number in range(chunks):
        start = number * CHUNK_SAMPLES
        bench.tell(api.Audio(name, ref, start, bytes(2 * CHUNK_SAMPLES), bench.now_ns))


def end(name: str = "s") -> tuple[api.EndSpeech, api.Respond]:
    return api.EndSpeech(name, api.TurnRef(1), 0), api.Respond(name, 1, "a1", GREEDY)


def run(bench: Bench, worker: HandWorker) -> None:
    """Until nothing is left to do."""
    bench.run()
    while worker.waiting:
        worker.finish()
        bench.run()


def test_an_answer_goes_on_while_another_session_is_recognised(
    bench: Bench, worker: HandWorker
) -> None:
    """The decoder runs to the answer's end before the pass does."""
    begin(bench, "t")
    bench.run()
    assert bench.engine.is_recognising
    item = api.Item("q", api.Role.USER, (api.Text("hello"),))
    bench.tell(api.AddItem("s", item), api.Respond("s", 1, "a1", GREEDY))
    bench.run()
    assert bench.text() == echo("hello")
    assert bench.of(api.Hearing) == []
    worker.finish()
    bench.run()
    (heard,) = bench.of(api.Hearing)
    assert isinstance(heard, api.Hearing)
    assert (heard.session, heard.committed) == ("t", "what")


def test_what_a_session_says_next_waits_for_its_pass(bench: Bench, worker: HandWorker) -> None:
    """In the order it came, with the words of the last sample; and only one pass at a time."""
    begin(bench, chunks=3)
    begin(bench, "t")
    bench.tell(*end())
    bench.run()
    assert len(worker.waiting) == 1
    assert bench.of(api.Heard) == []
    run(bench, worker)
    (said,) = (e for e in bench.events if isinstance(e, api.Heard))
    assert said.text == QUESTION
    assert bench.text() == echo(QUESTION)


def test_speech_that_goes_on_while_its_final_pass_is_under_way(
    bench: Bench, worker: HandWorker
) -> None:
    """Its words are recognised with those before it, in a second final pass."""
    begin(bench, chunks=2)
    run(bench, worker)
    bench.tell(api.Hush("s", api.TurnRef(1), 0, speculate=GREEDY))
    bench.run()
    assert bench.recognizer.finishes == 0
    assert len(worker.waiting) == 1
    later = api.TurnRef(1, 1)
    bench.tell(api.Resume("s", later))
    bench.tell(api.Audio("s", later, 16_000, bytes(2 * CHUNK_SAMPLES), bench.now_ns))
    bench.tell(api.EndSpeech("s", later, 0), api.Respond("s", 1, "a1", GREEDY))
    run(bench, worker)
    assert bench.recognizer.finishes == 2
    assert bench.text() == echo(QUESTION)


@pytest.mark.parametrize("again", [False, True])
def test_a_session_that_is_closed_meanwhile_takes_nothing(
    bench: Bench, worker: HandWorker, again: bool
) -> None:
    """Nor does one that was opened under the same name; and the next pass begins."""
    begin(bench)
    bench.run()
    bench.tell(api.Close("s"))
    if again:
        bench.open("s")
    begin(bench, "t")
    run(bench, worker)
    assert [e.session for e in bench.events if isinstance(e, api.Hearing)] == ["t"]
    assert not bench.engine.is_recognising


def test_a_final_pass_of_a_closed_session_is_dropped(bench: Bench, worker: HandWorker) -> None:
    """Nobody is told its words, and another pass may begin."""
    begin(bench, chunks=2)
    run(bench, worker)
    bench.tell(*end())
    bench.run()
    bench.tell(api.Close("s"))
    run(bench, worker)
    assert bench.of(api.Heard) == []
    assert not bench.engine.is_recognising


def test_a_failed_pass_is_its_sessions_own(
    bench: Bench, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its sessions is told; the next pass works, and its words have their place behind the
    sound of the one that failed."""

    def full(utterances: Sequence[list[int]], pcms: Sequence[Pcm]) -> list[FakeWords]:
        raise SoftTableFull(8, 9)

    begin(bench)
    begin(bench, "t")
    bench.run()
    with monkeypatch.context() as patch:
        patch.setattr(bench.recognizer, "recognize_batch", full)
        worker.finish()
    run(bench, worker)
    failed = [e for e in bench.events if isinstance(e, api.Failed)]
    assert {(e.about, e.code) for e in failed} == {("audio", "soft_table_full")}
    assert bench.of(api.Hearing) == []
    ref = api.TurnRef(1)
    bench.tell(
        api.Audio("t", ref, CHUNK_SAMPLES, bytes(2 * CHUNK_SAMPLES), bench.now_ns), *end("t")
    )
    run(bench, worker)
    assert len(bench.of(api.Heard)) == 1
    heard = [e for e in bench.events if isinstance(e, api.Hearing)]
    assert heard[-1].at_sample == 2 * CHUNK_SAMPLES


def test_sound_whose_pass_failed_behind_a_final_one_has_another(
    bench: Bench, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recogniser that keeps the sound hears it then; without it its words would be lost."""
    begin(bench)
    run(bench, worker)
    bench.tell(api.Hush("s", api.TurnRef(1), 0))
    run(bench, worker)
    assert bench.recognizer.finishes == 1

    def keeps(utterances: Sequence[list[int]], pcms: Sequence[Pcm]) -> list[FakeWords]:
        for utterance, pcm in zip(utterances, pcms, strict=True):
            utterance[0] += len(pcm)
        raise KernelFailed("out of memory for a test")

    with monkeypatch.context() as patch:
        patch.setattr(bench.recognizer, "recognize_batch", keeps)
        sound = bytes(2 * CHUNK_SAMPLES)
        bench.tell(api.Audio("s", api.TurnRef(1), CHUNK_SAMPLES, sound, bench.now_ns))
        run(bench, worker)
    bench.tell(end()[0])
    run(bench, worker)
    assert bench.recognizer.finishes == 2
    (said,) = (e for e in bench.events if isinstance(e, api.Heard))
    assert said.text == "what is the capital"


@pytest.mark.parametrize("words_known", [False, True])
def test_a_final_pass_that_fails(
    bench: Bench, worker: HandWorker, monkeypatch: pytest.MonkeyPatch, words_known: bool
) -> None:
    """The turn ends with the words that were heard live, and says so. Without any, the command
    fails: the utterance stays open, and the command can be sent again."""
    if not words_known:
        bench.recognizer.words = []
    begin(bench)
    run(bench, worker)
    bench.tell(end()[0])
    bench.run()

    def broken(utterance: list[int], pcm: Pcm | None = None) -> FakeWords:
        raise EngineError("no words")

    with monkeypatch.context() as patch:
        patch.setattr(bench.recognizer, "finish", broken)
        worker.finish()
    bench.run()
    (failed,) = (e for e in bench.events if isinstance(e, api.Failed))
    assert isinstance(failed, api.Failed)
    if words_known:
        assert (failed.session, failed.about) == ("s", "audio")
        (heard,) = bench.of(api.Heard)
        assert isinstance(heard, api.Heard)
        assert heard.text == "what si"  # the newest live word is wrong
        return
    assert (failed.session, failed.about) == ("s", "end_speech")
    bench.tell(end()[0])  # the utterance is open still
    run(bench, worker)
    assert len(bench.of(api.Heard)) == 1


@pytest.mark.parametrize("another", [False, True])
def test_a_result_that_is_taken_before_its_wake_up_leaves_the_engine_asleep(
    bench: Bench, worker: HandWorker, another: bool
) -> None:
    """Between the two the engine may have stepped for another reason, and begun another pass."""
    begin(bench, chunks=2 if another else 1)
    bench.run()
    worker.finish()
    bench.run()
    assert len(bench.of(api.Hearing)) == 1
    assert bench.engine.is_recognising == another
    worker.wake()
    bench.run()
    assert not worker.is_readable


def test_another_fault_of_the_recogniser_is_not_hidden(bench: Bench, worker: HandWorker) -> None:
    """It ends the engine, which is started again, as one within a step does."""
    begin(bench)
    bench.run()
    (_, future) = worker.waiting.pop()
    future.set_exception(RuntimeError("a kernel failed"))
    with pytest.raises(RuntimeError, match="a kernel failed"):
        bench.run()


def test_the_thread_ends_with_the_engine(bench: Bench, worker: HandWorker) -> None:
    """Closing the engine closes the worker."""
    bench.close()
    assert worker.closed


def lives(seed: int, bench: Bench, step: Callable[[], None]) -> None:
    """Three people talk at once, each three turns; `step` is called between what they do."""
    order = random.Random(seed)
    scripts: dict[str, list[list[api.Command]]] = {}
    for name in ("s", "t", "u"):
        bench.tell(api.Open(name, "Hi"))
        scripts[name] = [turn_of(name, turn, order) for turn in (1, 2, 3)]
    while any(scripts.values()):
        name = order.choice([name for name, turns in scripts.items() if turns])
        turns = scripts[name]
        begins = isinstance(turns[0][0], api.BeginSpeech)
        answered = sum(isinstance(e, api.Finished) and e.session == name for e in bench.events)
        if begins and answered < 3 - len(turns):
            step()  # nobody speaks before the answer here
            continue
        bench.tell(turns[0].pop(0))
        if not turns[0]:
            turns.pop(0)
        if order.random() < 0.5:
            step()


def turn_of(name: str, turn: int, order: random.Random) -> list[api.Command]:
    ref = api.TurnRef(turn)
    script: list[api.Command] = [api.BeginSpeech(name, ref, f"u{turn}", 0)]
    for number in range(order.randint(1, 4)):
        start = number * CHUNK_SAMPLES
        script.append(api.Audio(name, ref, start, bytes(2 * CHUNK_SAMPLES), 0))
    if order.random() < 0.5:
        script.append(api.Hush(name, ref, 0, speculate=GREEDY))
    ends = api.EndSpeech(name, ref, 0), api.Respond(name, turn, f"a{turn}", GREEDY)
    return [*script, *ends]


def said(bench: Bench) -> dict[str, list[str]]:
    """What each session was told, in order."""
    told: dict[str, list[str]] = {"s": [], "t": [], "u": []}
    for event in bench.events:
        if isinstance(event, api.Heard):
            told[event.session].append(f"heard {event.text}")
        elif isinstance(event, api.Finished):
            told[event.session].append(f"answered {event.text} {event.reason} {event.code}")
    return told


@pytest.mark.parametrize("seed", range(40))
def test_sessions_hear_and_answer_the_same_beside_and_within(seed: int) -> None:
    """In random orders of steps and ends of passes, streams included."""
    worker = HandWorker()
    within, beside = Bench(), Bench(worker=worker)
    lives(seed, within, within.run)
    within.run()
    chance = random.Random(seed)

    def step() -> None:
        bench_steps = chance.randint(0, 3)
        for _ in range(bench_steps):
            beside.engine.step()
        if worker.waiting and chance.random() < 0.5:
            worker.finish()

    lives(seed, beside, step)
    run(beside, worker)
    assert said(beside) == said(within)
    for name in ("s", "t", "u"):
        assert beside.stream_text(name) == within.stream_text(name)


def test_a_real_thread_wakes_the_engine() -> None:
    """Its file descriptor is readable when a pass has ended, and not afterwards."""
    prepared: list[bool] = []
    bench = Bench(worker=WorkerThread("recogniser", lambda: prepared.append(True)))
    bench.open()
    begin(bench, chunks=3)
    bench.tell(*end())
    while bench.engine.step() or bench.engine.is_recognising:
        if bench.engine.is_recognising:
            assert select.select(bench.engine.wake_fds, [], [], PATIENCE_S)[0]
    assert bench.text() == echo(QUESTION)
    assert prepared == [True]
    assert select.select(bench.engine.wake_fds, [], [], 0)[0] == []
    bench.close()


class HeldRecognizer(FakeRecognizer):
    """A pass begins, and ends when `released`."""

    def __init__(self) -> None:
        super().__init__(QUESTION)
        self.begun, self.released = threading.Event(), threading.Event()

    def recognize_batch(
        self, utterances: Sequence[list[int]], pcms: Sequence[Pcm]
    ) -> list[FakeWords]:
        self.begun.set()
        assert self.released.wait(PATIENCE_S)
        return super().recognize_batch(utterances, pcms)


class ReleasingThread(WorkerThread):
    """Lets the pass of `recognizer` end when it is about to wait for it."""

    def __init__(self, recognizer: HeldRecognizer) -> None:
        super().__init__("recogniser")
        self._recognizer = recognizer

    def close(self) -> None:
        self._recognizer.released.set()
        super().close()


def test_the_engine_closes_while_a_thread_is_in_a_pass() -> None:
    """It waits for the thread first: a pass that runs there cannot be closed from here."""
    recognizer = HeldRecognizer()
    bench = Bench(recognizer=recognizer, worker=ReleasingThread(recognizer))
    bench.open()
    begin(bench)
    bench.run()
    assert recognizer.begun.wait(PATIENCE_S)
    bench.close()
    assert not bench.engine.is_recognising
