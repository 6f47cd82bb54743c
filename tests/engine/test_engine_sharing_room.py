"""Sessions that together need more K/V than the pool holds: whoever would fit alone is answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine import api
from headstart.engine.backends import room
from headstart.engine.scheduling.admission import AdmissionRules
from tests.engine.commands import GREEDY, respond, user_item
from tests.engine.fakes import WORD_SAMPLES, Bench
from tests.engine.test_engine_admission import BLOCKS, SIZE, Memory, RememberingRunner

WORDS = "tell me more of this now please"
NAMES = tuple("abcdef")


class LongRunner(RememberingRunner):
    """Answers in a hundred words, so that answers of several sessions run side by side."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.reply = lambda asked: f"{asked[:5]}: " + "so " * 12


def bench_of(host_blocks: int, idle_after_s: float = 1e6) -> tuple[Bench, Memory]:
    """A pool of twenty blocks; nobody ever counts as idle, unless for so long."""
    memory = Memory()
    bench = Bench(
        WORDS,
        blocks=BLOCKS,
        host_blocks=host_blocks,
        rules=AdmissionRules(idle_after_s, turn_tokens=8),
        memory=memory,
        runner=LongRunner(memory),
        max_cached=4,
    )
    return bench, memory


def check(bench: Bench, memory: Memory) -> None:
    """Each block is owned, and holds K/V of its stream's tokens and nothing else."""
    bench.engine.check_accounting()
    for session in bench.engine.sessions.values():
        for stream in session.streams():
            if not stream.offload_slot.offloaded:
                memory.check(stream)


def work(bench: Bench, memory: Memory, steps: int) -> None:
    for _ in range(steps):
        if not bench.engine.step():
            return
        check(bench, memory)


Action = tuple[str, int, int]
"""What a session does, which one, and how many steps are made then."""

actions = st.lists(
    st.tuples(
        st.sampled_from(["write", "speak", "aside", "look"]),
        st.integers(0, 59),
        st.sampled_from([0, 1, 3, 20, 2_000]),
    ),
    min_size=12,
    max_size=30,
)


class Crowd:
    """Sessions that each fit into the pool, as long as nobody else is there."""

    def __init__(self, count: int, host_blocks: int) -> None:
        self.bench, self.memory = bench_of(host_blocks)
        self.names = NAMES[:count]
        self.asked: list[tuple[str, int]] = []
        self.turn = 0
        for name in self.names:
            self.bench.open(name)

    def act(self, kind: str, number: int, steps: int) -> None:
        name = self.names[number % len(self.names)]
        if self.has_room(name):
            getattr(self, kind)(name)
        work(self.bench, self.memory, steps)

    def has_room(self, name: str) -> bool:
        """Whether one more turn of it would fit into the pool, and its turn before is answered."""
        session = self.bench.engine.sessions[name]
        held = len(session.conversation.tokens()) + 40
        return session.at_rest and not session.commands and held + 100 < BLOCKS * SIZE

    def ask(self, name: str, **how: Any) -> None:
        self.bench.tell(api.Respond(name, self.turn, f"a{self.turn}", GREEDY, **how))
        self.asked.append((name, self.turn))

    def write(self, name: str) -> None:
        self.turn += 1
        self.bench.tell(api.AddItem(name, user_item(f"u{self.turn}", f"{name}{self.turn} hello")))
        self.ask(name)

    def aside(self, name: str) -> None:
        self.turn += 1
        self.ask(name, items=(user_item("i", f"{name}{self.turn} aside"),))

    def look(self, name: str) -> None:
        self.bench.tell(api.Frame(name, 0, api.Image(1, 1, bytes((self.turn % 250, 0, 0)))))

    def speak(self, name: str) -> None:
        self.turn += 1
        ref = api.TurnRef(self.turn)
        self.bench.tell(api.BeginSpeech(name, ref, f"u{self.turn}", 0))
        for n in range(6):
            pcm = bytes(2 * WORD_SAMPLES)
            self.bench.tell(api.Audio(name, ref, n * WORD_SAMPLES, pcm, self.bench.now_ns))
        self.bench.tell(api.Hush(name, ref, 0, speculate=GREEDY))
        self.bench.tell(api.EndSpeech(name, ref, 0))
        self.ask(name)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.sampled_from([0, 12, 400]), actions)
def test_nobody_fails_who_would_fit_alone(
    count: int, host_blocks: int, done: Sequence[Action]
) -> None:
    """In whatever order two to six sessions write, speak, look and are answered: every answer is
    complete, and the K/V of each session are those of its own tokens, as if nobody else had been
    there."""
    crowd = Crowd(count, host_blocks)
    for kind, number, steps in done:
        crowd.act(kind, number, steps)
    work(crowd.bench, crowd.memory, 20_000)
    assert not crowd.bench.of(api.Failed)
    ends = {e.generation: e for e in crowd.bench.events if isinstance(e, api.Finished)}
    for name, generation in crowd.asked:
        assert ends[generation].reason is api.FinishReason.STOP, (name, ends[generation])
        assert ends[generation].text.endswith("so " * 12)
    assert len(ends) == len(crowd.asked)
    crowd.bench.engine.close()
    assert crowd.bench.pool.used_blocks == 0
    assert crowd.bench.admission.host.used_bytes == 0


@pytest.mark.parametrize("host_blocks", [0, 64])
def test_two_busy_sessions_take_turns_in_the_pool(host_blocks: int) -> None:
    """Each needs two thirds of it, and neither is ever idle: K/V of the one at rest go to host
    memory, or are computed again."""
    bench, memory = bench_of(host_blocks)
    for name in ("a", "b"):
        bench.open(name)
        bench.tell(api.AddItem(name, user_item("u", name * 150)))
        bench.run()
    for turn in range(1, 7):
        name = "ab"[turn % 2]
        bench.tell(api.AddItem(name, user_item(f"u{turn}", "x")), respond(turn, name, GREEDY))
        work(bench, memory, 2_000)
        assert bench.finished(turn).reason is api.FinishReason.STOP
    assert not bench.of(api.Failed)
    assert bool(bench.admission.offloads) == bool(host_blocks)
    assert bool(bench.admission.dropped) != bool(host_blocks)


def test_two_answers_that_do_not_fit_at_once_come_one_after_the_other() -> None:
    """The larger one gives up its K/V, waits, and goes on where it was."""
    bench, memory = bench_of(0)
    for name, length in (("a", 130), ("b", 110)):
        bench.open(name)
        bench.tell(api.AddItem(name, user_item("u", name * length)))
    bench.tell(respond(1, "a", GREEDY), respond(2, "b", GREEDY))
    work(bench, memory, 2_000)
    assert [bench.finished(n).text for n in (1, 2)] == [
        "aaaaa: " + "so " * 12,
        "bbbbb: " + "so " * 12,
    ]
    assert not bench.of(api.Failed)


def test_a_short_turn_does_not_wait_for_all_of_a_long_answer() -> None:
    """After a while the larger stream gives way, though it could go on."""
    bench, memory = bench_of(0)
    for name in ("long", "short"):
        bench.open(name)
    bench.tell(api.AddItem("long", user_item("u", "l" * 240)), respond(1, "long", GREEDY))
    work(bench, memory, 12)
    bench.tell(api.AddItem("short", user_item("u", "s" * 60)), respond(2, "short", GREEDY))
    work(bench, memory, 1)
    bench.now_ns += room.SLICE_NS
    work(bench, memory, 2_000)
    ends = [e.generation for e in bench.events if isinstance(e, api.Finished)]
    assert ends == [2, 1]
    assert not bench.of(api.Failed)


def test_what_does_not_fit_alone_fails_at_once_and_costs_nobody_anything() -> None:
    """The error tells what can be set."""
    bench, memory = bench_of(0)
    for name in ("a", "whale"):
        bench.open(name)
    bench.tell(api.AddItem("a", user_item("u", "a" * 100)))
    work(bench, memory, 200)
    bench.tell(api.AddItem("whale", user_item("u", "w" * 600)), respond(1, "whale", GREEDY))
    work(bench, memory, 200)
    assert bench.finished(1).code == "cache_full"
    assert "kv_pool_mib" in bench.finished(1).message
    assert bench.engine.sessions["a"].stream.kv_len > 100
