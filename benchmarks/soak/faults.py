"""Faults beside the clients: the engine dies or hangs, the machine sleeps, its date jumps, its disk
is full, a client's process stops.

Each fault has a witness: a session in the middle of an answer. It must receive a named error, and
its next turn must work, in the same connection. While the engine is gone or the machine sleeps,
missing answers of other sessions are excused; a jump of the date or a full disk excuses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from email.utils import parsedate_to_datetime

import httpx
import psutil

from headstart.benchmarks.soak.connections import ConnectionLost, Inbox, open_socket
from headstart.benchmarks.soak.server_state import engine_process, fetch_status
from headstart.benchmarks.soak.visit import Visit, World
from headstart.gateway.runtime.child_process import die_with_parent

ENGINE_LOST_AFTER_S = 8
"""The server's setting in a soak: seconds of silence until the engine counts as lost."""
READY_WAIT_S = 180.0
TOLD_WAIT_S = 60.0
AFTERMATH_S = 30.0
"""Seconds after a fault in which answers may still be late because of it."""
SLEEP_S = 3.0
HTTP_WAIT_S = 60.0
SECRET_S_MIN = 10
DATE_TOLD_S = 2.0
"""uvicorn updates its Date header once a second."""
STUCK_WAIT_S = 90.0


class Faults:
    """Injects faults one after the other, evenly over a run."""

    def __init__(self, world: World, server_pid: int) -> None:
        self._world, self._server_pid = world, server_pid
        self._rng = random.Random("faults")

    @property
    def all(self) -> dict[str, Callable[[], Awaitable[None]]]:
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "engine killed": self.kill_engine,
            "stuck client": self.stuck_client,
            "engine hung": self.hang_engine,
            "machine asleep": self.sleep,
            "disk full": self.fill_disk,
        }
        if self._world.wall_clock is not None:
            faults["date set"] = self.set_date
        return faults

    async def inject(self, pause_s: float, over: asyncio.Event) -> None:
        """Inject all, with `pause_s` before each, until `over` is set."""
        for name, fault in self.all.items():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await over.wait()
            if over.is_set():
                return
            try:
                await fault()
                self._world.tally.did[f"fault: {name}"] += 1
            except (ConnectionLost, TimeoutError) as error:
                self._world.tally.complain(f"the witness of {name!r}: {error!r}", always=True)

    async def kill_engine(self) -> None:
        async with self._witness("engine killed") as visit, self._trouble():
            async with visit.long_answer(TOLD_WAIT_S):
                self._signal_engine(signal.SIGKILL)
            await self._until_ready()

    async def hang_engine(self) -> None:
        async with self._witness("engine hung") as visit, self._trouble():
            async with visit.long_answer(TOLD_WAIT_S):
                self._signal_engine(signal.SIGSTOP)
            await self._until_ready()

    async def sleep(self) -> None:
        """Stop all of the server's processes for a while, as when the machine is suspended."""
        async with (
            self._witness("machine asleep") as visit,
            self._trouble(),
            visit.long_answer(TOLD_WAIT_S),
        ):
            for number, pause_s in ((signal.SIGSTOP, SLEEP_S), (signal.SIGCONT, 0.0)):
                os.kill(self._server_pid, number)
                self._signal_engine(number)
                await asyncio.sleep(pause_s)

    async def set_date(self) -> None:
        """Move the date an hour ahead, two hours back, and to normal, each in the middle of an
        answer. A client secret must stay valid as long as promised, and no longer."""
        world, clock = self._world, self._world.wall_clock
        assert clock is not None
        good, short = await _secret(world.url, 600), await _secret(world.url, SECRET_S_MIN)
        async with self._witness("date set") as visit:
            await asyncio.sleep(SECRET_S_MIN + 1)
            try:
                for offset_s in (3600.0, -3600.0, 0.0):
                    async with visit.long_answer(TOLD_WAIT_S):
                        clock.set(offset_s)
                    await asyncio.sleep(DATE_TOLD_S)
                    date = (await _get(world.url, "/healthz", "")).headers["date"]
                    shown_s = parsedate_to_datetime(date).timestamp() - time.time()
                    if abs(shown_s - offset_s) > 60:
                        world.tally.complain(f"the server's date was not set: {date}", always=True)
                    answers = [await _get(world.url, "/v1/models", key) for key in (good, short)]
                    if [answer.status_code for answer in answers] != [200, 401]:
                        world.tally.complain(f"by {offset_s} s a secret changed", always=True)
                    if not await visit.is_answered():
                        world.tally.complain("no answer behind a jump of the date", always=True)
            finally:
                clock.set(0.0)

    async def fill_disk(self) -> None:
        """Make all file writes of the server fail: answers go on, a long form is read, and a killed
        engine restarts. (Nothing is recorded: see docs/security.md.)
        """
        pids = [self._server_pid, *_children(self._server_pid)]
        limits = [resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids]
        async with self._witness("disk full") as visit:
            try:
                for pid, (_, hard) in zip(pids, limits, strict=True):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
                async with visit.long_answer(TOLD_WAIT_S):
                    status = await _long_form(self._world.url)
                if status != 400:
                    self._world.tally.complain(f"a long form was answered by {status}", always=True)
                async with self._trouble():
                    self._signal_engine(signal.SIGKILL)
                    await asyncio.sleep(1.0)
                    await self._until_ready()
            finally:
                for pid in [self._server_pid, *_children(self._server_pid)]:
                    with contextlib.suppress(ProcessLookupError):
                        resource.prlimit(pid, resource.RLIMIT_FSIZE, limits[0])

    async def stuck_client(self) -> None:
        """Stop a client's process while megabytes are being sent to it."""
        argv = [
            sys.executable,
            "-P",
            "-m",
            "headstart.benchmarks.soak.stuck",
            self._world.url,
            self._world.model,
        ]
        process = await asyncio.create_subprocess_exec(
            *die_with_parent(argv), stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(STUCK_WAIT_S):
                line = await process.stdout.readline()
            port, since_s = int(line), time.monotonic()
            while port in _peers(self._server_pid):
                if time.monotonic() - since_s > STUCK_WAIT_S:
                    self._world.tally.complain("a stuck client kept its session", always=True)
                    break
                await asyncio.sleep(1.0)
        finally:
            process.kill()
            await process.wait()

    # --- parts -----------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _witness(self, fault: str) -> AsyncIterator[Visit]:
        """A session that is answered before, and must be answered after what happens inside."""
        world = self._world
        secret = world.canaries.issue()
        inbox = Inbox(secret, world.canaries, world.tally)
        line = await open_socket(world.url, world.model, inbox, live=world.live)
        try:
            visit = Visit(world, line, secret, self._rng)
            await visit.introduce()
            yield visit
            if not await visit.is_answered():
                world.tally.complain(f"after {fault!r} a turn was not answered", always=True)
        finally:
            await line.drop()

    @contextlib.asynccontextmanager
    async def _trouble(self) -> AsyncIterator[None]:
        trouble = self._world.tally.trouble()
        try:
            yield
        finally:
            trouble.ended_s = time.monotonic() + AFTERMATH_S

    def _signal_engine(self, number: signal.Signals) -> None:
        engine = engine_process(self._server_pid)
        if engine is not None:
            engine.send_signal(number)

    async def _until_ready(self) -> None:
        async with asyncio.timeout(READY_WAIT_S):
            while (await fetch_status(self._world.url))["engine"]["state"] != "ready":
                await asyncio.sleep(0.5)


async def _secret(url: str, seconds: int) -> str:
    async with httpx.AsyncClient(timeout=HTTP_WAIT_S) as http:
        body = {"expires_after": {"seconds": seconds}}
        response = await http.post(f"{url}/v1/realtime/client_secrets", json=body)
    value: str = response.json()["value"]
    return value


async def _get(url: str, path: str, key: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(timeout=HTTP_WAIT_S) as http:
        return await http.get(url + path, headers=headers)


async def _long_form(url: str) -> int:
    """The status of a call's multipart request whose session is a file of over a MiB."""
    files = {"sdp": ("a", b"nothing"), "session": ("b", b" " * (1 << 20) + b"{}")}
    async with httpx.AsyncClient(timeout=HTTP_WAIT_S) as http:
        return (await http.post(f"{url}/v1/realtime/calls", files=files)).status_code


def _children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def _peers(pid: int) -> set[int]:
    """Remote ports of a process's TCP connections."""
    connections = psutil.Process(pid).net_connections("tcp")
    return {connection.raddr.port for connection in connections if connection.raddr}
