"""Sessions that together need more K/V than the pool holds."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.engine.scheduling.admission import AdmissionRules
from tests.engine.commands import GREEDY, respond, user_item
from tests.engine.fakes import Bench
from tests.engine.test_engine_admission import BLOCKS, Memory, RememberingRunner

WORDS = "tell me more of this now please"


class LongRunner(RememberingRunner):
    """Answers in a dozen words."""

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
