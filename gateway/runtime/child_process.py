"""Keeps one child process alive: the engine.

Starts it, passes its log on line by line, starts it again when it dies, stops it at the end.

- Back-off: the first restart is at once, then 0.5, 1, 2, 4 … up to 30 s; a child that was `healthy`
  (told so by the engine link, or up for `HEALTHY_AFTER_S`) starts the count anew.
- A child that ends with code 2 says that its settings cannot work: no restart, `EngineRefused`.
- A child that dies `FIRST_TRIES` times before it was ever healthy: `EngineKeepsDying`.
- No orphans: the kernel kills the child when its parent dies (`die_with_parent`, Linux).
- The child gets a session of its own, so that Ctrl-C in a terminal reaches the parent alone, which
  then ends things in order: SIGTERM, and SIGKILL to all of its group after `STOP_WAIT_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections import deque
from collections.abc import Callable, Mapping

from headstart.gateway.errors import EngineKeepsDying, EngineRefused
from headstart.gateway.runtime import tasks

log = logging.getLogger("headstart.child_process")
child_log = logging.getLogger("headstart.engine")

EXIT_REFUSED = 2
FIRST_TRIES = 3
BACKOFF_FIRST_S = 0.5
BACKOFF_MAX_S = 30.0
HEALTHY_AFTER_S = 30.0
STOP_WAIT_S = 5.0
LOG_TAIL_LINES = 40
LOG_LINE_BYTES_MAX = 8192
"""A longer line of the child's log is passed on in pieces."""

# Runs before the child proper: PR_SET_PDEATHSIG outlives execv, and unlike subprocess's preexec_fn
# this is safe in a process with threads. A parent that died in between is seen by its changed id.
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
    process ends, however that ends. Off Linux, `argv` as it is."""
    if sys.platform != "linux":
        return argv
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *argv]


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


class ChildProcess:
    """`run` until cancelled or `stop`ped. `before_start` is called before each start, `on_exit`
    hears of each death, with the reason."""

    def __init__(
        self,
        argv: list[str],
        environment: Mapping[str, str] | None = None,
        on_exit: Callable[[str], None] | None = None,
        before_start: Callable[[], None] = lambda: None,
    ) -> None:
        self.argv = argv
        self.restarts = 0
        self.pid: int | None = None
        self.log_tail: deque[str] = deque(maxlen=LOG_TAIL_LINES)
        self._environment = dict(os.environ if environment is None else environment)
        self._on_exit = on_exit
        self._before_start = before_start
        self._backoff = Backoff()
        self._ever_healthy = False
        self._log_bytes = 0  # read of its words
        self._stopping = asyncio.Event()
        self._process: Process | None = None

    def healthy(self) -> None:
        """The child does its work: the next death is the first in a row again."""
        self._ever_healthy = True
        self._backoff.reset()

    def kill(self, reason: str) -> None:
        """End the child at once; it is started again. For a child that hangs."""
        if self._process is not None and self._process.returncode is None:
            log.error("killing the engine: %s", reason)
            self._signal(signal.SIGKILL)

    async def run(self) -> None:
        """Start and restart. Raises `EngineRefused`, `EngineKeepsDying`."""
        try:
            while not self._stopping.is_set():
                started_s = time.monotonic()
                ended = await self._run_once()
                if self._stopping.is_set():
                    return
                if time.monotonic() - started_s > HEALTHY_AFTER_S:
                    self.healthy()
                self._judge(ended)
                wait_s = self._backoff.next_s()
                self.restarts += 1
                log.error(
                    "the engine ended (%s); starting it again in %.1f s",
                    describe_exit(ended),
                    wait_s,
                )
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), wait_s)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL. Returns when the child is gone."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_WAIT_S)
        except TimeoutError:
            log.warning("the engine did not end within %.0f s of SIGTERM; killing it", STOP_WAIT_S)
            self._signal(signal.SIGKILL)
            await process.wait()

    def _judge(self, returncode: int) -> None:
        if returncode == 0:  # it saw no gateway for a while and went, in good order
            self._ever_healthy = True
        if returncode == EXIT_REFUSED:
            raise EngineRefused(list(self.log_tail)[-10:])
        if not self._ever_healthy and self.restarts + 1 >= FIRST_TRIES:
            raise EngineKeepsDying(
                FIRST_TRIES, describe_exit(returncode), list(self.log_tail)[-20:]
            )

    async def _run_once(self) -> int:
        self.log_tail.clear()
        self._before_start()
        self._process = await asyncio.create_subprocess_exec(
            *die_with_parent(self.argv),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=STDOUT,
            env=self._environment,
            start_new_session=True,
        )
        self.pid = self._process.pid
        log.info("started the engine (process %d)", self.pid)
        assert self._process.stdout is not None
        # Whoever writes to a pipe that nobody reads stands still.
        unread = lambda error: self.kill(f"its log cannot be read: {error}")  # noqa: E731
        reading = tasks.own(self._read_log(self._process.stdout), "engine log", unread)
        returncode = await self._process.wait()
        # A grandchild may hold the pipe open: what it would still say is not waited for.
        before = -1
        while not reading.done() and self._log_bytes > before:
            before = self._log_bytes
            await asyncio.wait([reading], timeout=1.0)
        reading.cancel()
        self.pid = None
        if self._on_exit is not None and not self._stopping.is_set():
            self._on_exit(f"it ended: {describe_exit(returncode)}")
        return returncode

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
            child_log.info("%s", text)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
