import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import uvloop

from headstart.engine import api
from headstart.gateway.engine_link import EngineLink, LinkObserver, LinkState, private_endpoint
from headstart.gateway.errors import ChildKeepsDying, ChildRefused
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.child_process import (
    LOG_LINE_BYTES_MAX,
    Backoff,
    ChildProcess,
    describe_exit,
    restarts,
    wait_or_kill,
)
from tests.gateway.shell_fakes import fake_engine_argv, until


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@contextlib.asynccontextmanager
async def supervised(argv: list[str]) -> AsyncIterator[ChildProcess]:
    supervisor = ChildProcess("engine", argv)
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor
    finally:
        await supervisor.stop()
        await asyncio.wait({running})


def test_backoff_grows_to_its_limit_and_starts_anew() -> None:
    """The first restart is at once; then waits double up to 30 s; health resets them."""
    backoff = Backoff()
    waits = [backoff.next_s() for _ in range(10)]
    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    backoff.reset()
    assert backoff.next_s() == 0.0


async def test_a_child_whose_log_cannot_be_read_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would stand still at its next line, once the pipe is full."""

    async def broken(*_: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError("a bug in the log's reader")

    before = tasks.failures["engine log"]
    monkeypatch.setattr(ChildProcess, "_read_log", broken)
    async with supervised(python("import time; time.sleep(60)")) as supervisor:
        await until(lambda: supervisor.restarts == 1 and supervisor.pid is not None)
    assert tasks.failures["engine log"] == before + 1


async def test_a_child_that_waits_for_its_start_is_drained_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ended, and would be started again later: it is not. Nor is one that never ran."""
    monkeypatch.setattr(Backoff, "next_s", lambda _: 3600.0)
    starts: list[str] = []
    waits = ChildProcess("engine", python("raise SystemExit(1)"), on_exit=starts.append)
    running = asyncio.create_task(waits.run())
    await until(lambda: starts)
    waits.drain()
    await running
    assert len(starts) == 1
    never = ChildProcess("engine", python("raise SystemExit(1)"), on_exit=starts.append)
    never.drain()
    await never.run()
    assert len(starts) == 1


async def test_a_child_that_is_drained_while_it_is_started_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The signal goes to the process once there is one."""
    child = ChildProcess("engine", python("import time; time.sleep(60)"))
    start = child._start

    async def drained_meanwhile() -> asyncio.subprocess.Process:
        process = await start()
        child.drain()
        return process

    monkeypatch.setattr(child, "_start", drained_meanwhile)
    await child.run()
    assert child.restarts == 0


def test_exit_in_words() -> None:
    """Signals are named, unknown ones numbered."""
    assert describe_exit(-9) == "killed by SIGKILL"
    assert describe_exit(3) == "exit code 3"
    assert describe_exit(-250) == "killed by signal 250"


async def kill_and_see_it_again() -> list[str]:
    """SIGKILL a supervised fake engine in mid-answer; what its session was told."""

    class Session:
        def __init__(self) -> None:
            self.told: list[str] = []

        def engine_event(self, event: api.Event) -> None:
            self.told.append(type(event).__name__)

        def engine_lost(self) -> None:
            self.told.append("lost")

        def engine_ready(self, ready: api.Ready) -> None:
            self.told.append("ready")

    with private_endpoint() as endpoint:
        link = EngineLink(endpoint)
        session = Session()
        link.attach("s", session)
        link.start()
        async with supervised(fake_engine_argv(link.endpoint, "--delta-ms", "2000")) as supervisor:

            class Healthy(LinkObserver):
                def engine_ready(self, ready: api.Ready) -> None:
                    supervisor.healthy()

            link.observer = Healthy()
            await until(lambda: link.is_ready)
            link.send(api.Open("s", ""))
            link.send(api.Respond("s", 1, "item", api.Sampling()))
            await until(lambda: "Delta" in session.told)
            first = supervisor.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            await until(lambda: link.state is LinkState.LOST)
            await until(lambda: link.is_ready)
            assert supervisor.pid != first
            assert supervisor.restarts == 1
            link.detach("s")
            second = supervisor.pid
        assert not psutil.pid_exists(second or 0)
        link.close()
    return session.told


def test_sigkill_in_mid_answer_leads_to_a_restart() -> None:
    """Under uvloop: the session hears lost, then ready, and no process is left behind."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(kill_and_see_it_again()) == ["ready", "Delta", "lost", "ready"]


async def test_code_2_means_no_restart() -> None:
    """A child that refuses its settings is not started again; its words are in the error."""
    supervisor = ChildProcess("engine", python("print('no model named nosuch'); exit(2)"))
    with pytest.raises(ChildRefused, match="no model named nosuch"):
        await supervisor.run()
    assert supervisor.restarts == 0


async def test_child_that_never_works_is_given_up() -> None:
    """Three deaths before the first health: an error with how it ended and its last words."""
    supervisor = ChildProcess("engine", python("print('out of luck'); exit(7)"))
    with pytest.raises(ChildKeepsDying, match=r"3 times.*exit code 7[\s\S]*out of luck"):
        await supervisor.run()


async def test_stubborn_child_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that ignores SIGTERM is gone after the wait, and its own children with it."""
    monkeypatch.setattr("headstart.gateway.runtime.child_process.STOP_WAIT_S", 0.2)
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    async with supervised(python(code)) as supervisor:
        await until(lambda: supervisor.log_tail)
        grandchild = int(supervisor.log_tail[0])
    await until(lambda: not _alive(grandchild))


async def test_log_is_passed_on_in_bounded_lines() -> None:
    """Both streams are read; an endless line comes in pieces instead of filling memory."""
    code = "import sys; print('x' * 50_000); print('to stderr', file=sys.stderr); sys.exit(2)"
    supervisor = ChildProcess("engine", python(code))
    with pytest.raises(ChildRefused):
        await supervisor.run()
    lines = list(supervisor.log_tail)
    assert "to stderr" in lines
    assert sum(len(line) for line in lines if set(line) == {"x"}) == 50_000
    assert max(len(line) for line in lines) <= 2 * LOG_LINE_BYTES_MAX


def test_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    """When the gateway itself is killed with SIGKILL, the engine does not live on."""
    code = (
        "import asyncio, sys\n"
        "from headstart.gateway.runtime.child_process import ChildProcess\n"
        "child = 'import time; print(1, flush=True); time.sleep(60)'\n"
        "s = ChildProcess('engine', [sys.executable, '-c', child])\n"
        "async def main():\n"
        "    task = asyncio.create_task(s.run())\n"
        "    while not s.log_tail: await asyncio.sleep(0.01)\n"
        "    print(s.pid, flush=True); await task\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(python(code), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    child.wait(timeout=60)


async def test_a_child_that_hangs_is_killed_and_started_again() -> None:
    """Whoever keeps it alive says how to tell; what it then owes is known to be lost."""
    deaths: list[str] = []
    hung: list[str] = []
    before = restarts["engine"]
    child = ChildProcess(
        "engine",
        python("import time; time.sleep(60)"),
        hangs=lambda: hung.pop() if hung else None,
        on_exit=deaths.append,
        watch_s=0.05,
    )
    running = asyncio.create_task(child.run())
    await until(lambda: child.pid is not None)
    first = child.pid
    await asyncio.sleep(0.2)
    assert child.pid == first, "it works"
    hung.append("it says nothing")
    await until(lambda: child.pid not in (None, first))
    assert deaths == ["killed by SIGKILL"]
    assert restarts["engine"] == before + 1
    await child.stop()
    await running


async def test_one_that_is_never_given_up_is_started_ever_more_rarely() -> None:
    """Not even one that refuses to work, or cannot be started at all."""
    for argv in (python("exit(2)"), ["/nowhere/such-a-program"]):
        child = ChildProcess("engine", argv, never_gives_up=True)
        running = asyncio.create_task(child.run())
        began_s = time.monotonic()
        while child.restarts < 4:
            await asyncio.sleep(0.01)
        assert time.monotonic() - began_s > 1.5, "at once, then after 0.5 s and 1 s"
        assert not running.done()
        await child.stop()
        await running


async def test_a_process_that_does_not_end_is_killed() -> None:
    """One that ends in time is left to it, and one that has ended is no error."""
    slow = await asyncio.create_subprocess_exec(*python("import time; time.sleep(60)"))
    await wait_or_kill(slow, 0.1)
    assert slow.returncode == -signal.SIGKILL
    await wait_or_kill(slow, 0.1)
    quick = await asyncio.create_subprocess_exec(*python("raise SystemExit(3)"))
    await wait_or_kill(quick, 60.0)
    assert quick.returncode == 3


def _alive(pid: int) -> bool:
    return bool(psutil.pid_exists(pid)) and bool(
        psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    )
