"""What a soak says of a server's state and log: any difference and any exception is reported."""

from __future__ import annotations

import dataclasses
import random

import pytest

from headstart.benchmarks.soak.canary import Canaries
from headstart.benchmarks.soak.run import RSS_GROWTH_BYTES_MAX, verdict
from headstart.benchmarks.soak.server_state import Log, ServerState
from headstart.benchmarks.soak.tally import Tally

BOOKS = ServerState(
    fds=20,
    threads=8,
    tasks=5,
    rss_bytes=150 << 20,
    sessions=0,
    engine_sessions=0,
    kv_blocks_used=0,
    engine_fds=30,
    engine_threads=4,
    engine_rss_bytes=900 << 20,
    processes=1,
)


def judge(
    after: ServerState = BOOKS,
    tally: Tally | None = None,
    canaries: Canaries | None = None,
    log: Log | None = None,
) -> list[str]:
    given = (tally or Tally(), canaries or Canaries(random.Random(1)), log or Log())
    result = verdict(BOOKS, after, *given)
    assert result["ok"] is (result["broken"] == [])
    broken: list[str] = result["broken"]
    return broken


def test_a_server_without_leaks_passes() -> None:
    """Memory may grow within its bound."""
    assert judge() == []
    assert judge(dataclasses.replace(BOOKS, rss_bytes=BOOKS.rss_bytes + (1 << 20))) == []


@pytest.mark.parametrize(
    "field", [f.name for f in dataclasses.fields(ServerState) if not f.name.endswith("rss_bytes")]
)
def test_one_more_of_anything_is_a_leak(field: str) -> None:
    """A descriptor, a thread, a task, a session, a block, a process: of gateway and engine."""
    after = dataclasses.replace(BOOKS, **{field: getattr(BOOKS, field) + 1})
    name = "kv_blocks" if field == "kv_blocks_used" else field
    assert judge(after) == [f"{name}_delta"]


@pytest.mark.parametrize("field", ["rss_bytes", "engine_rss_bytes"])
def test_memory_over_its_bound_is_a_leak(field: str) -> None:
    """Of either process."""
    grown = getattr(BOOKS, field) + RSS_GROWTH_BYTES_MAX + 1
    assert judge(dataclasses.replace(BOOKS, **{field: grown})) == ["rss"]


def test_an_exception_in_the_log_is_found() -> None:
    """A traceback, asyncio's complaints; with the lines behind it, and once."""
    log = Log()
    for line in (
        "12:00:00 INFO    headstart.serve: all is well",
        "12:00:01 ERROR   asyncio: Task exception was never retrieved",
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "KeyError: 'y'",
    ):
        log.take(line)
    assert len(log.unhandled) == 1
    assert "KeyError" in log.unhandled[0]
    assert judge(log=log) == ["unhandled"]


def test_what_we_log_of_clients_faults_is_none() -> None:
    """Warnings and restarts are no exceptions."""
    log = Log()
    for line in (
        "12:00:00 WARNING headstart.connection: session s: shed, slow reader: more than 512 events",
        "12:00:00 ERROR   headstart.child_process: the engine ended (killed by SIGKILL)",
    ):
        log.take(line)
    assert log.unhandled == []
    assert log.lines == 2


def test_a_broken_promise_counts_unless_a_fault_explains_it() -> None:
    """What waited while a fault worked is excused; what must always hold is not."""
    tally = Tally()
    trouble = tally.trouble()
    tally.complain("no answer")
    tally.complain("an error without a name", always=True)
    assert (tally.complaints, tally.excused) == (1, 1)
    trouble.ended_s = trouble.began_s
    tally.complain("no answer")
    assert (tally.complaints, tally.excused) == (2, 1)
    assert tally.told == ["an error without a name", "no answer"]
    assert judge(tally=tally) == ["complaints"]
