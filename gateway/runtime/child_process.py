"""Supervises one child process: the engine, the TTS worker, or an image decoder.

Starts it, forwards its log line by line, restarts it when it ends, kills it when it hangs, and
stops it at the end.

- Back-off: the first restart is immediate, then 0.5, 1, 2, 4 … up to 30 s. The count starts again
  after a child that was `healthy` (reported by its owner, or up for `HEALTHY_AFTER_S`).
- A child that exits with code 2 has unusable settings: no restart, `ChildRefused`.
- A child that exits with code 3 was drained: no restart, `run` returns.
- A child that ends `FIRST_TRIES` times before it was ever healthy: `ChildKeepsDying`. With
  `never_gives_up` it is restarted regardless.
- A child that hangs is killed: reported by its owner (`kill`), or by `hangs`, called every
  `WATCH_S`.
- No orphans: the kernel kills the child when its parent dies (`die_with_parent`, Linux).
- The child has its own session, so that Ctrl-C in a terminal reaches only the parent, which then
  shuts down in order: SIGTERM, and SIGKILL to the whole group after `STOP_WAIT_S`.
- Restarts are counted per child: `headstart_child_restarts_total`.

"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from headstart.gateway.errors import ChildKeepsDying, ChildRefused
from headstart.gateway.runtime import tasks

log = logging.getLogger("headstart.child_process")

EXIT_REFUSED = 2
EXIT_DRAINED = 3
FIRST_TRIES = 3
BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 30.0
HEALTHY_AFTER_S = 30.0
STOP_WAIT_S = 5.0
WATCH_S = 1.0
LOG_TAIL_LINES = 40
LOG_LINE_BYTES_MAX = 8192
"""A longer line of the child's log is forwarded in pieces."""

restarts: Counter[str] = Counter()
"""Restarts since this process started, by the child's name."""

# Runs before the child itself: PR_SET_PDEATHSIG survives execv, and unlike subprocess's preexec_fn
# this is safe in a process with threads. A changed parent id reveals a parent that died in between.
_LAUNCHER = """
import ctypes, os, sys
parent, argv = int(sys.argv[1]), sys.argv[2:]
PR_SET_PDEATHSIG, SIGKILL = 1, 9
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
if os.getppid() != parent:
    sys.exit(1)
os.execv(argv[0], argv)
"""


def die_with_parent(argv: list[str]) -> list[str]:
    """`argv` (with an absolute program path) wrapped so that the kernel kills it when the calling
    process ends, for whatever reason. Unchanged on systems other than Linux."""
    if sys.platform != "linux":
        return argv
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *argv]


async def wait_or_kill(process: Process, wait_s: float) -> None:
    """Wait for a process that was told to end; kill it if it has not after `wait_s`."""
    try:
        async with asyncio.timeout(wait_s):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def describe_exit(returncode: int) -> str:
    """A return code in words: "killed by SIGKILL" or "exit code 1"."""
    if returncode >= 0:
        return f"exit code {returncode}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-returncode).name}"
    return f"killed by signal {-returncode}"


class Backoff:
    """Seconds to wait before each restart in a row: 0, 0.5, 1, 2, … `BACKOFF_MAX_S`."""

    def __init__(self) -> None:
        self.restarts_in_row = 0

    def next_s(self) -> float:
        self.restarts_in_row += 1
        if self.restarts_in_row == 1:
            return 0.0
        # The exponent stops growing long before 2.0 ** n could overflow.
        exponent = min(self.restarts_in_row - 2, 16)
        return min(BACKOFF_FIRST_S * 2.0**exponent, BACKOFF_MAX_S)

    def reset(self) -> None:
        self.restarts_in_row = 0


@dataclass(frozen=True, slots=True)
class Pipes:
    """A child's stdin and stdout, as `asyncio.create_subprocess_exec` takes them: a file descriptor
    or a constant. `stdout` None: it is log output, as stderr always is."""

    stdin: int = DEVNULL
    stdout: int | None = None


class ChildProcess:
    """`run` until cancelled or `stop`ped. Used on the loop that runs it.

    `name`: for log lines and metrics. `connect`: context manager around each start; gives the
    child's pipes. `talk`: communicates with each process over those until its stdout ends.
    `on_exit`: called at each death with the reason. `hangs`: returns why the child must be killed
    now; None: it works. `stop_wait_s`: from SIGTERM to SIGKILL at the end.

    """

    def __init__(
        self,
        name: str,
        argv: list[str],
        *,
        environment: Mapping[str, str] | None = None,
        connect: Callable[[], contextlib.AbstractContextManager[Pipes]] | None = None,
        talk: Callable[[Process], Coroutine[Any, Any, None]] | None = None,
        on_exit: Callable[[str], None] = lambda _: None,
        hangs: Callable[[], str | None] | None = None,
        watch_s: float = WATCH_S,
        stop_wait_s: float | None = None,
        never_gives_up: bool = False,
    ) -> None:
        self.name = name
        self.argv = argv
        self.restarts = 0
        self.pid: int | None = None
        self.log_tail: deque[str] = deque(maxlen=LOG_TAIL_LINES)
        self._environment = dict(os.environ if environment is None else environment)
        self._connect = connect or (lambda: contextlib.nullcontext(Pipes()))
        self._talk = talk
        self._on_exit = on_exit
        self._hangs = hangs
        self._watch_s = watch_s
        self._stop_wait_s = STOP_WAIT_S if stop_wait_s is None else stop_wait_s
        self._never_gives_up = never_gives_up
        self._log = logging.getLogger(f"headstart.{name}")
        self._backoff = Backoff()
        self._ever_healthy = False
        self._draining = False
        self._log_bytes = 0  # read of its words
        self.tried = asyncio.Event()
        """Set once it has been started, or could not be, or shall not be any more."""
        self._stopping = asyncio.Event()
        self._ending = asyncio.Event()  # stopping or draining: it is not started any more
        self._process: Process | None = None
        self._around: list[asyncio.Task[None]] = []  # the tasks that read from it and watch it

    def healthy(self) -> None:
        """The child works: the next death counts as the first in a row."""
        self._ever_healthy = True
        self._backoff.reset()

    def kill(self, reason: str) -> None:
        """Kill the child at once because it hangs; it is restarted."""
        if self._process is not None and self._process.returncode is None:
            log.error("killing the %s: %s", self.name, reason)
            self._signal(signal.SIGKILL)

    def drain(self) -> None:
        """Ask the child (SIGUSR1) to finish what it has begun and end; it is not restarted, nor
        started if it waits for that."""
        self._draining = True
        self._ending.set()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGUSR1)

    async def run(self) -> None:
        """Start and restart; returns when it was stopped or drained. Raises `ChildRefused`,
        `ChildKeepsDying`."""
        try:
            while not self._ending.is_set():
                started_s = time.monotonic()
                returncode, how = await self._run_once()
                if self._stopping.is_set():
                    return
                if self._draining or returncode == EXIT_DRAINED:
                    log.info("the %s was drained and has ended (%s)", self.name, how)
                    return
                if time.monotonic() - started_s > HEALTHY_AFTER_S:
                    self.healthy()
                if not self._never_gives_up:
                    self._judge(returncode, how)
                wait_s = self._backoff.next_s()
                self.restarts += 1
                restarts[self.name] += 1
                log.error("the %s ended (%s); starting it again in %.1f s", self.name, how, wait_s)
                self._on_exit(how)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._ending.wait()
        finally:
            self.tried.set()
            await self.stop()
            self._let_go()

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL. Returns when the child is gone."""
        self._stopping.set()
        self._ending.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._stop_wait_s):
                await process.wait()
        except TimeoutError:
            what = "the %s did not end within %.0f s of SIGTERM; killing it"
            log.warning(what, self.name, self._stop_wait_s)
            self._signal(signal.SIGKILL)
            await process.wait()

    def _judge(self, returncode: int | None, how: str) -> None:
        if returncode == 0:  # it lost its gateway and exited cleanly
            self._ever_healthy = True
        if returncode == EXIT_REFUSED:
            raise ChildRefused(self.name, list(self.log_tail)[-10:])
        if not self._ever_healthy and self.restarts + 1 >= FIRST_TRIES:
            raise ChildKeepsDying(self.name, FIRST_TRIES, how, list(self.log_tail)[-20:])

    async def _run_once(self) -> tuple[int | None, str]:
        """The return code, None if there was no process, and how it ended in words."""
        self.log_tail.clear()
        try:
            process = self._process = await self._start()
        except OSError as error:  # no memory or no descriptors: may be temporary
            return None, f"it cannot be started: {error}"
        finally:
            self.tried.set()
        self.pid = process.pid
        if self._draining:  # since it was being started
            self.drain()
        log.info("started the %s (process %d)", self.name, self.pid)
        listening = self._listening(process)
        self._around = [*listening, *self._watching()]
        returncode = await process.wait()
        await self._drained(listening)
        self._let_go()
        return returncode, describe_exit(returncode)

    def _let_go(self) -> None:
        """Release an ended process."""
        for task in self._around:
            task.cancel()
        self.pid = None

    async def _start(self) -> Process:
        with self._connect() as pipes:
            return await asyncio.create_subprocess_exec(
                *die_with_parent(self.argv),
                stdin=pipes.stdin,
                stdout=PIPE if pipes.stdout is None else pipes.stdout,
                stderr=STDOUT if pipes.stdout is None else PIPE,
                env=self._environment,
                start_new_session=True,
            )

    def _listening(self, process: Process) -> list[asyncio.Task[None]]:
        stream = process.stderr or process.stdout
        assert stream is not None
        listening = [self._own(self._read_log(stream), f"{self.name} log")]
        if self._talk is not None:
            listening.append(self._own(self._talk(process), self.name))
        return listening

    def _watching(self) -> list[asyncio.Task[None]]:
        if self._hangs is None:
            return []
        return [self._own(self._watch(self._hangs), f"{self.name} watchdog")]

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Without these tasks a child would block on a pipe that nobody reads, or hang unnoticed.
        So if one fails, the child is killed and restarted with new ones."""
        return tasks.own(work, name, lambda error: self.kill(f"{name}: {error!r}"))

    async def _watch(self, hangs: Callable[[], str | None]) -> None:
        while True:
            await asyncio.sleep(self._watch_s)
            if (reason := hangs()) is not None:
                self.kill(reason)

    async def _drained(self, listening: list[asyncio.Task[None]]) -> None:
        """Wait until the process's remaining output is read. A grandchild may keep a pipe open; its
        output is not waited for."""
        before = -1
        while any(not task.done() for task in listening) and self._log_bytes > before:
            before = self._log_bytes
            await asyncio.wait(listening, timeout=1.0)

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        pending = b""
        while data := await stream.read(LOG_LINE_BYTES_MAX):
            self._log_bytes += len(data)
            *lines, pending = (pending + data).split(b"\n")
            if len(pending) > LOG_LINE_BYTES_MAX:
                lines, pending = [*lines, pending], b""
            for line in lines:
                self._log_line(line)
        if pending:
            self._log_line(pending)

    def _log_line(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if text:
            self.log_tail.append(text)
            self._log.info("%s", text)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
