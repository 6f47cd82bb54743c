"""headstart.gateway.tts.owed_clauses: every clause has exactly one end, whatever the order."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.tts.messages import (
    ClauseDone,
    Prepare,
    Speak,
    Stop,
    SynthesisedAudio,
    VoiceCommand,
)
from headstart.gateway.tts.owed_clauses import UnfinishedClauses
from headstart.gateway.tts.scheduler import TtsScheduler
from tests.gateway.tts.voices import Beeps

Key = tuple[str, int, int]


class Wire:
    """Our books and a worker's desk, with a pipe each way in which things may lie for a while."""

    def __init__(self) -> None:
        self.owed, self.desk, self.now_s = UnfinishedClauses(), TtsScheduler(Beeps()), 0.0
        self.to_worker: deque[VoiceCommand] = deque()
        self.to_us: deque[SynthesisedAudio | ClauseDone] = deque()
        self.open: set[Key] = set()  # asked for, no end yet
        self.ends: Counter[Key] = Counter()
        self.numbers: Counter[tuple[str, int]] = Counter()

    def speak(self, session: str, generation: int, text: str) -> None:
        number = self.numbers[session, generation]
        self.numbers[session, generation] += 1
        speak = Speak(session, generation, number, text)
        self.owed.sent(speak)
        self.to_worker.append(speak)
        self.open.add((session, generation, number))

    def prepare(self, session: str, text: str) -> None:
        self.to_worker.append(Prepare(session, text))

    def end(self, ended: set[Key]) -> None:
        self.ends.update(ended)
        self.open -= ended

    def stop(self, session: str, generation: int | None) -> None:
        self.owed.stopped(Stop(session, generation))
        self.to_worker.append(Stop(session, generation))
        self.end({k for k in self.open if k[0] == session and generation in (None, k[1])})

    def worker_reads(self) -> None:
        if not self.to_worker:
            return
        command = self.to_worker.popleft()
        if isinstance(command, Stop):
            self.desk.stop(command.session, command.generation)
        elif isinstance(command, Prepare):
            self.desk.prepare(command)
        elif (refusal := self.desk.ask(command)) is not None:
            assert isinstance(refusal, ClauseDone)
            self.to_us.append(refusal)

    def worker_works(self) -> None:
        self.now_s += 0.2
        if self.desk.next_s(self.now_s) == 0:
            event = self.desk.work(self.now_s)
            if event is not None:  # it was made ahead
                assert isinstance(event, SynthesisedAudio | ClauseDone)
                self.to_us.append(event)

    def we_read(self) -> None:
        if not self.to_us:
            return
        event = self.to_us.popleft()
        key = (event.session, event.generation, event.clause)
        taken = self.owed.takes(event)
        assert taken == (key in self.open), "sound of a clause that is over, or none of one that is"
        if isinstance(event, ClauseDone):
            self.end({key} & self.open)

    def lose(self) -> None:
        self.owed.lost()
        self.desk = TtsScheduler(Beeps())
        self.to_worker.clear()
        self.to_us.clear()
        self.end(set(self.open))


SESSIONS, GENERATIONS = st.sampled_from(["a", "b"]), st.integers(1, 2)
TEXTS = st.sampled_from(["one two", "broken", ""])
STEPS = st.one_of(
    st.tuples(st.just("speak"), SESSIONS, GENERATIONS, TEXTS),
    st.tuples(st.just("prepare"), SESSIONS, TEXTS),
    st.tuples(st.just("stop"), SESSIONS, GENERATIONS | st.none()),
    st.tuples(st.sampled_from(["worker_reads", "worker_works", "we_read"])),
    st.tuples(st.sampled_from(["worker_reads", "worker_works", "we_read"])),
    st.tuples(st.just("lose")),
)


@given(st.lists(STEPS, max_size=60))
def test_every_clause_has_exactly_one_end(steps: list[tuple[Any, ...]]) -> None:
    """Said, failed, stopped, or lost with the worker. What is owed is what has none yet, at every
    step; and once both sides have read and done all, nothing is, and the worker has no work."""
    wire = Wire()
    for name, *arguments in steps:
        getattr(wire, name)(*arguments)
        assert len(wire.owed) == len(wire.open)
    for _ in range(1000):
        wire.worker_reads()
        wire.worker_works()
        wire.we_read()
    assert not wire.open
    assert len(wire.owed) == len(wire.desk) == 0
    asked = {(*answer, n) for answer, count in wire.numbers.items() for n in range(count)}
    assert wire.ends == Counter(asked)
