"""Resources that the server holds before and after, and errors in its log.

A `ServerState` is read from `/status` and, for processes below the gateway, from the system. States
are comparable at rest only: `at_rest` waits until no session is left and nothing changes any more.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

REST_WAIT_S = 90.0
"""A call that never connected is kept for 20 s, a stuck reader for 60 s."""
REST_POLL_S = 1.0
REST_POLLS = 4
"""Number of equal readings in a row that count as rest; the engine's come once a second."""


@dataclass(frozen=True)
class ServerState:
    """`fds`, `threads`, `tasks`: of the gateway. `engine_*`: of the engine's process (its pid
    changes when it is killed). `below`: of other processes below the gateway, that is, the voice's.
    """

    fds: int
    threads: int
    tasks: int
    rss_bytes: int
    sessions: int
    engine_sessions: int
    kv_blocks_used: int
    engine_fds: int
    engine_threads: int
    engine_rss_bytes: int
    processes: int

    @property
    def steady(self) -> tuple[int, ...]:
        """All values that become constant at rest; memory does not."""
        facts = asdict(self)
        return tuple(value for key, value in facts.items() if not key.endswith("rss_bytes"))

    def minus(self, before: ServerState) -> dict[str, int]:
        after = asdict(self)
        return {f"{key}_delta": after[key] - was for key, was in asdict(before).items()}


async def read(url: str) -> ServerState:
    """Raises `httpx.HTTPError` if the server does not answer."""
    status = await fetch_status(url)
    gateway, engine = status["gateway"], status["engine"]
    children = psutil.Process(gateway["pid"]).children(recursive=True)
    process = next((child for child in children if _is_engine(child)), None)
    with process.oneshot() if process is not None else _Nothing():
        return ServerState(
            fds=gateway["fds"],
            threads=gateway["threads"],
            tasks=gateway["tasks"],
            rss_bytes=gateway["rss_bytes"],
            sessions=status["sessions"]["now"],
            engine_sessions=engine["sessions"] or 0,
            kv_blocks_used=engine["kv_blocks_used"] or 0,
            engine_fds=process.num_fds() if process is not None else 0,
            engine_threads=process.num_threads() if process is not None else 0,
            engine_rss_bytes=process.memory_info().rss if process is not None else 0,
            processes=len(children),
        )


class _Nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


async def fetch_status(url: str) -> dict[str, Any]:
    """What `/status` says."""
    async with httpx.AsyncClient(timeout=30) as http:
        body: dict[str, Any] = (await http.get(f"{url}/status")).json()
    return body


async def at_rest(url: str, wait_s: float = REST_WAIT_S) -> ServerState:
    """The state once all clients have left and it is constant; after `wait_s`, as it is."""
    deadline_s = time.monotonic() + wait_s
    last, same = await read(url), 0
    while time.monotonic() < deadline_s and same < REST_POLLS:
        await asyncio.sleep(REST_POLL_S)
        state = await read(url)
        gone = state.sessions == 0 and state.engine_sessions == 0
        same = same + 1 if gone and state.steady == last.steady else 0
        last = state
    return last


def engine_process(gateway_pid: int) -> psutil.Process | None:
    """The engine process below that gateway; None while there is none."""
    children = psutil.Process(gateway_pid).children(recursive=True)
    return next((child for child in children if _is_engine(child)), None)


def _is_engine(process: psutil.Process) -> bool:
    try:
        argv = process.cmdline()
    except psutil.Error:
        return False
    modules = [argv[at + 1] for at, word in enumerate(argv[:-1]) if word == "-m"]
    return any(
        module in ("headstart.engine", "headstart.gateway.fake_engine") for module in modules
    )


# --- the log --------------------------------------------------------------------------------------

UNHANDLED = re.compile(
    r"Traceback \(most recent call last\)|internal error|never retrieved|never awaited"
    r"|Exception ignored|Task was destroyed|ResourceWarning|Segmentation fault|AssertionError"
)
LINES_KEPT = 400
CONTEXT_LINES = 30


@dataclass
class Log:
    """The server's log as it comes. `unhandled`: signs of an unhandled exception, each with the
    lines behind it. `file` receives all of it."""

    file: Path | None = None
    unhandled: list[str] = field(default_factory=list)
    lines: int = 0
    _following: int = 0

    def take(self, line: str) -> None:
        self.lines += 1
        if self.file is not None:
            with self.file.open("a") as stream:
                stream.write(f"{line}\n")
        if UNHANDLED.search(line):
            in_the_last = self._following > 0  # part of a traceback
            self._following = CONTEXT_LINES
            if not in_the_last and len(self.unhandled) < LINES_KEPT:
                self.unhandled.append(line)
                return
        if self._following > 0 and self.unhandled:
            self._following -= 1
            self.unhandled[-1] += f"\n{line}"
