"""A peer's process: its standard output is read line by line, its log goes to a file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.child_process import describe_exit, die_with_parent, wait_or_kill

STOP_WAIT_S = 20.0
START_WAIT_S = 240.0
POLL_S = 0.1
TAIL_BYTES = 2_000


class PeerFailed(RuntimeError):
    """A peer did not start, or ended. `reason` names it and ends with the end of its log."""

    def __init__(self, name: str, reason: str, log: Path) -> None:
        self.name, self.reason = name, reason
        tail = log.read_bytes()[-TAIL_BYTES:].decode(errors="replace") if log.exists() else ""
        super().__init__(f"{name}: {reason}; its log ({log}) ends with:\n{tail}")


class Child:
    """A running process. Its name and log are for messages."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self._process, self._log = process, log

    def check(self) -> None:
        """Raises `PeerFailed` if it has ended."""
        if self._process.returncode is not None:
            raise self.failed(f"ended with {describe_exit(self._process.returncode)}")

    def failed(self, reason: str) -> PeerFailed:
        return PeerFailed(self.name, reason, self._log)

    async def until(self, ready: Callable[[], bool], what: str) -> None:
        """Wait for `ready`. Raises `PeerFailed` if it ends before, or takes `START_WAIT_S`."""
        loop = asyncio.get_running_loop()
        late_at_s = loop.time() + START_WAIT_S
        while not await asyncio.to_thread(ready):
            self.check()
            if loop.time() > late_at_s:
                raise self.failed(f"expected {what} within {START_WAIT_S:g} s")
            await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def child(
    name: str,
    argv: list[str],
    log: Path,
    on_line: Callable[[str], None] = lambda _: None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Child]:
    """Run `argv` (with an absolute program path), adding `environment` to ours; at the end its
    standard input is closed, and it is killed if it goes on. `on_line` gets its standard output."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *die_with_parent(argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            limit=1 << 20,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    assert process.stdout is not None
    reading = tasks.awaited(_lines(process.stdout, on_line), f"{name} output")
    try:
        yield Child(name, process, log)
    finally:
        await _stop(process)
        await reading


async def _lines(stream: asyncio.StreamReader, on_line: Callable[[str], None]) -> None:
    async for line in stream:
        on_line(line.decode(errors="replace").rstrip("\n"))


async def _stop(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
    await wait_or_kill(process, STOP_WAIT_S)


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def is_open(port: int) -> bool:
    """Whether somebody accepts connections at this port of the machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
