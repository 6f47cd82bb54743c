"""A server started for a talk, and the wait until a server is ready."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import urllib.error
import urllib.request
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from http.client import HTTPException, InvalidURL
from typing import Any
from urllib.parse import urlunsplit

from headstart.client_key import NO_KEY
from headstart.gateway.errors import ServerFailed, ServerRefused, ServerUnreachable, TalkError
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.child_process import die_with_parent, wait_or_kill
from headstart.talk.connection.address import split
from headstart.talk.connection.refusals import KEY_FAULT, UNAUTHORISED, error_code, refused_key

Status = dict[str, Any]

STATUS_TIMEOUT_S = 5.0
STATUS_POLL_S = 0.2
STATUS_BYTES_MAX = 1 << 20
"""Some thousand are usual; what is longer is no status."""
STOP_WAIT_S = 15.0
ENDING_WAIT_S = 3.0
LOG_TAIL_LINES = 30


class LocalServer:
    """A `headstart serve` child process on a free port."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, tail: deque[str]) -> None:
        self.url = url
        self._process = process
        self._tail = tail

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raise `ServerFailed` with its last log lines if it has ended."""
        if self._process.returncode is not None:
            raise _ended(self._process.returncode, self._tail)

    async def ended(self) -> None:
        """Return when it has ended, for whatever reason."""
        await self._process.wait()

    async def explain(self, error: TalkError) -> TalkError:
        """Explain a failure to reach the server: its end, if it is ending; otherwise with the last
        lines of its log, which was not shown."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDING_WAIT_S):
                await self._process.wait()
            return _ended(self._process.returncode or 0, self._tail)
        if not isinstance(error, ServerFailed) or not self._tail:
            return error
        said = "\n  ".join(self._tail)
        return type(error)(f"{error}\nthe server lives; its log ends with:\n  {said}")


def _ended(returncode: int, tail: deque[str]) -> ServerFailed:
    said = "\n  ".join(tail) or "(it wrote nothing)"
    return ServerFailed(f"the server ended with code {returncode}; it said:\n  {said}")


@contextlib.asynccontextmanager
async def local_server(
    arguments: list[str],
    port: int = 0,
    on_line: Callable[[str], None] = lambda _: None,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[LocalServer]:
    """Start `headstart serve` with `arguments`, adding `environment` to ours, and stop it at the
    end; `on_line` gets its log lines. Raises `ServerFailed`."""
    argv = [
        sys.executable,
        "-P",
        "-m",
        "headstart",
        "serve",
        "--port",
        str(port),
        "--announce",
        *arguments,
    ]
    process = await asyncio.create_subprocess_exec(
        *die_with_parent(argv),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches only us; we stop it in order
        env={**os.environ, **(environment or {})},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    tail: deque[str] = deque(maxlen=LOG_TAIL_LINES)
    reading = tasks.awaited(_keep_tail(process.stderr, tail, on_line), "server log")
    try:
        line = await process.stdout.readline()
        if not line:
            await asyncio.wait([reading])
            raise _ended(await process.wait(), tail)
        yield LocalServer(process, json.loads(line)["url"], tail)
    finally:
        await _stop(process)
        await asyncio.wait([reading])


async def _keep_tail(
    stream: asyncio.StreamReader, tail: deque[str], on_line: Callable[[str], None]
) -> None:
    pending = b""
    while data := await stream.read(4096):
        *lines, pending = (pending + data).split(b"\n")
        for line in (line.decode(errors="replace") for line in lines if line.strip()):
            tail.append(line)
            on_line(line)
        pending = pending[-4096:]


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    await wait_or_kill(process, STOP_WAIT_S)


async def until_ready(
    url: str,
    on_status: Callable[[Status], None],
    check: Callable[[], None] = lambda: None,
    api_key: str = NO_KEY,
    *,
    speak: bool = False,
    poll_s: float = STATUS_POLL_S,
) -> Status | None:
    """Wait until the server's engine accepts sessions and, to `speak`, its voice is loaded or is
    known not to be there; None if it is not a headstart server, which has no status, or the key may
    not see it. Raises `ServerUnreachable`, `ServerRefused` for a key that the server does not know
    and for a peer that does not speak HTTP, and whatever `check` raises."""
    address = status_url(url)
    while True:
        check()
        status = await asyncio.to_thread(_fetch, address, api_key)
        if status is None:
            return None
        on_status(status)
        voice_loads = speak and status.get("voice", {}).get("state") == "loading"
        if status["engine"]["state"] == "ready" and not voice_loads:
            return status
        await asyncio.sleep(poll_s)


def status_url(url: str) -> str:
    """The URL of `/status` for any URL of the server. Raises `ServerUnreachable`."""
    parts = split(url)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/").removesuffix("/realtime").removesuffix("/v1")
    return urlunsplit((scheme, parts.netloc, f"{path}/status", "", ""))


def fetch_status(url: str, api_key: str = NO_KEY) -> Status | None:
    """The server's status, by any URL of it; None: it answers, but with none. Blocks. Raises
    `ServerUnreachable` and `ServerRefused`."""
    return _fetch(status_url(url), api_key)


def _fetch(address: str, api_key: str) -> Status | None:
    """The server's status; None: it answers, but with none. Raises `ServerUnreachable` and
    `ServerRefused`."""
    try:
        request = urllib.request.Request(address, headers={"Authorization": f"Bearer {api_key}"})
        with urllib.request.urlopen(request, timeout=STATUS_TIMEOUT_S) as response:
            said: bytes = response.read(STATUS_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error, contextlib.suppress(ValueError, OSError, HTTPException):
            said = error.read(STATUS_BYTES_MAX)
            if error.code == UNAUTHORISED and error_code(said) == KEY_FAULT:
                raise refused_key(address) from error
        return None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise ServerUnreachable(
            f"nobody answers at {address} ({reason}): start a server with `headstart serve`, "
            f"check the address, or leave out --url to have one started"
        ) from error
    except (ValueError, InvalidURL) as error:
        raise ServerUnreachable(f"{address!r} is no server's address: {error}") from error
    except HTTPException as error:
        raise ServerRefused(
            f"{address} answers, but not in HTTP ({str(error).strip()!r}): "
            f"expected the address of a server that was started with `headstart serve`"
        ) from error
    try:
        status = json.loads(said)
    except (ValueError, RecursionError):
        return None
    return status if _is_status(status) else None


def _is_status(said: Any) -> bool:
    """Whether a server's answer has what is read of a status here and in `talk.output`."""
    if not isinstance(said, dict) or not isinstance(said.get("voice", {}), dict):
        return False
    engine = said.get("engine")
    if not isinstance(engine, dict) or not isinstance(engine.get("state"), str):
        return False
    loading = engine.get("loading")
    return loading is None or (
        isinstance(loading, dict)
        and isinstance(loading.get("what"), str)
        and all(isinstance(loading.get(name), int | float) for name in ("done", "total"))
    )
