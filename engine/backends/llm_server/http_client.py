"""The connections to LLM servers: many requests at once, on an event loop in a thread of its own.

The engine's loop never waits here: `send` and `cancel` hand over, `take` returns what has come, and
`fileno` becomes readable when something has. A cancelled request's connection is closed, which is
how servers learn that nobody wants the rest.

Bounds: a line of a stream and a whole reply have at most `MAX_LINE_BYTES` and `MAX_REPLY_BYTES`;
what is longer is `LlmGarbage`. The outcomes waiting for `take` are bounded by the requests in
flight times their `max_pieces`; a stream with more is cut off the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import math
import queue
import select
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from headstart.engine.backends.llm_server.errors import (
    LlmBusy,
    LlmConnectionLost,
    LlmFailed,
    LlmGarbage,
    LlmKeyRefused,
    LlmRefused,
    LlmServerError,
    LlmStalled,
    LlmTlsError,
    LlmUnreachable,
)

log = logging.getLogger("headstart.engine")

MAX_LINE_BYTES = 1 << 20
MAX_REPLY_BYTES = 4 << 20
MAX_CONNECTIONS = 1024
KEPT_CONNECTIONS = 128
SHOWN_CHARS = 300
"""Of a server's message, in ours."""
TEXT = "text"
_STOP_WAIT_S = 5.0

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds: for a connection, for the first piece of a reply, and between two pieces."""

    connect_s: float = 5.0
    first_s: float = 60.0
    between_s: float = 15.0


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A POST of `body` to `url`, or a GET without one, sent after `delay_s`. `max_pieces`: of a
    stream. `as_text`: the reply is not JSON, and arrives as the value of `TEXT`. `limit_s`: for the
    whole reply, in place of the client's timeouts."""

    url: str
    body: Json | None = None
    delay_s: float = 0.0
    max_pieces: int = 1
    as_text: bool = False
    limit_s: float | None = None


@dataclass(frozen=True, slots=True)
class Arrived:
    """A piece of a reply: one object of a stream, or a whole reply."""

    call: int
    piece: Json
    at_ns: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A reply is complete; nothing follows for this call. `closed`: it came to its own end mark."""

    call: int
    closed: bool


@dataclass(frozen=True, slots=True)
class Broken:
    """A request failed; nothing follows for this call."""

    call: int
    error: LlmServerError


Outcome = Arrived | Ended | Broken


@dataclass(slots=True)
class _Attempt:
    """Of one request: whether a connection was made for it, and whether the server replied."""

    is_new: bool = False
    is_answered: bool = False

    async def trace(self, event: str, _: Mapping[str, object]) -> None:
        """Called by httpcore (its extension `trace`) with each step of a request."""
        if event == "connection.connect_tcp.started":
            self.is_new = True


class HttpClient:
    """Requests to any number of servers. `key`: bearer token for all of them, or None. `clock`
    stamps what arrives. What waits for `take` is bounded by the requests under way: each brings at
    most its `max_pieces` and one end."""

    def __init__(
        self,
        key: str | None = None,
        timeouts: Timeouts | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._clock = clock
        self._timeouts = Timeouts() if timeouts is None else timeouts
        self._key = key
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._tasks: dict[int, asyncio.Task[None]] = {}  # used on the loop only
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="llm-server", daemon=True)
        self._thread.start()

    # --- the engine's side -----------------------------------------------------------------------

    def send(self, request: HttpRequest) -> int:
        """Send a request; returns its number. A call ends in `Ended` or `Broken`, once, unless it
        is cancelled."""
        call = next(self._numbers)
        self._loop.call_soon_threadsafe(self._begin, call, request)
        return call

    def cancel(self, call: int) -> None:
        """Close a request's connection. Outcomes that have come already may still be taken."""
        self._loop.call_soon_threadsafe(self._cancel, call)

    def take(self) -> list[Outcome]:
        """Remove and return what has come."""
        assert self._thread.is_alive(), "the thread of the LLM server's connection has ended"
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass
        taken = []
        with contextlib.suppress(queue.Empty):
            while True:
                taken.append(self._outcomes.get_nowait())
        return taken

    def fileno(self) -> int:
        """Readable when `take` has something to return."""
        return self._reader.fileno()

    def wake(self) -> None:
        """Make `fileno` readable, from any thread."""
        with contextlib.suppress(BlockingIOError, OSError):  # full: it is readable already
            self._writer.send(b"\0")

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is something to take; whether there is."""
        return bool(select.select([self._reader], [], [], timeout_s)[0])

    def close(self) -> None:
        """Close all connections and end the thread. A second call does nothing."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_STOP_WAIT_S)
        self._reader.close()
        self._writer.close()

    # --- the thread's side -----------------------------------------------------------------------

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        timeouts = httpx.Timeout(
            connect=self._timeouts.connect_s, read=None, write=self._timeouts.first_s, pool=None
        )
        limits = httpx.Limits(
            max_connections=MAX_CONNECTIONS, max_keepalive_connections=KEPT_CONNECTIONS
        )
        self._http = httpx.AsyncClient(headers=headers(self._key), timeout=timeouts, limits=limits)
        try:
            self._loop.run_forever()
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._http.aclose())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _begin(self, call: int, request: HttpRequest) -> None:
        task = self._tasks[call] = self._loop.create_task(self._run(call, request))
        # Not in `_run`: a task that is cancelled before its first step does not get there.
        task.add_done_callback(lambda _: self._tasks.pop(call))

    def _cancel(self, call: int) -> None:
        task = self._tasks.get(call)
        if task is not None:
            task.cancel()

    def _put(self, outcome: Outcome) -> None:
        self._outcomes.put(outcome)
        self.wake()

    async def _run(self, call: int, request: HttpRequest) -> None:
        try:
            if request.delay_s:
                await asyncio.sleep(request.delay_s)
            closed = await self._exchange_open(call, request)
            self._put(Ended(call, closed))
        except LlmServerError as error:
            self._put(Broken(call, error))
        except (httpx.HTTPError, ssl.SSLError) as error:
            self._put(Broken(call, named(error, request.url)))
        except Exception as error:
            # The session gets an error and goes on; the cause is ours and must be seen.
            log.exception("a request to the LLM server failed")
            self._put(Broken(call, LlmFailed(0, repr(error)[:SHOWN_CHARS])))

    async def _exchange_open(self, call: int, request: HttpRequest) -> bool:
        """`_exchange`, again for each kept connection that the server had closed by then: a server
        may do so between two requests, and that is no fault of it."""
        while True:
            attempt = _Attempt()
            try:
                return await self._exchange(call, request, attempt)
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                if attempt.is_new or attempt.is_answered:
                    raise

    async def _exchange(self, call: int, request: HttpRequest, attempt: _Attempt) -> bool:
        """One request and its reply. Whether the reply came to its own end."""
        waited_s = self._timeouts.first_s if request.limit_s is None else request.limit_s
        method = "GET" if request.body is None else "POST"
        stream = self._http.stream(
            method, request.url, json=request.body, extensions={"trace": attempt.trace}
        )
        try:
            async with asyncio.timeout(waited_s) as limit, stream as response:
                attempt.is_answered = True
                if response.status_code != httpx.codes.OK:
                    body = await _whole(response)
                    raise refusal(response.status_code, response.headers, body, self._key)
                if not _is_stream(response):
                    body = await _whole(response)
                    whole = _text(body) if request.as_text else object_of(body)
                    self._put(Arrived(call, whole, self._clock()))
                    return True
                async for piece in _pieces(response, request.max_pieces):
                    if piece is None:
                        return True
                    self._put(Arrived(call, piece, self._clock()))
                    waited_s = self._timeouts.between_s
                    limit.reschedule(self._loop.time() + waited_s)
                return False
        except TimeoutError as error:
            raise LlmStalled(waited_s) from error


def headers(key: str | None) -> Mapping[str, str]:
    """Headers of every request."""
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def named(error: Exception, url: str, waited_s: float = 0.0) -> LlmServerError:
    """An error of the HTTP library as one of ours; `waited_s`: the time it had to read."""
    causes = list(_causes(error))
    why = str(error) or type(error).__name__
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return LlmTlsError(url, why)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return LlmUnreachable(url, why)
    if isinstance(error, httpx.TimeoutException):
        return LlmStalled(waited_s)
    return LlmConnectionLost(why)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def refusal(
    status: int, headers: Mapping[str, str], body: bytes, key: str | None
) -> LlmServerError:
    """The error for a status other than 200."""
    message = message_of(body)
    if status in (401, 403):
        return LlmKeyRefused(status, key is not None)
    if status in (429, 503):
        return LlmBusy(status, message, _seconds(headers.get("retry-after", "")))
    if status >= 500:
        return LlmFailed(status, message)
    return LlmRefused(status, message)


def message_of(body: bytes) -> str:
    """What an error reply says, in OpenAI's form or any other."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return body[:SHOWN_CHARS].decode("utf-8", errors="replace").strip() or "no message"
    if isinstance(said, dict):
        said = said.get("error", said)
    if isinstance(said, dict):
        said = said.get("message") or said
    return str(said)[:SHOWN_CHARS]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        return 0.0
    return seconds if 0 < seconds < math.inf else 0.0


def _is_stream(response: httpx.Response) -> bool:
    return str(response.headers.get("content-type", "")).startswith("text/event-stream")


async def _whole(response: httpx.Response) -> bytes:
    """A reply's body. Raises `LlmGarbage` for one that is too long."""
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_REPLY_BYTES:
            raise LlmGarbage("a reply", f"more than {MAX_REPLY_BYTES} bytes")
    return body


async def _pieces(response: httpx.Response, most: int) -> AsyncIterator[Json | None]:
    """The objects of a stream, and None for its own end; a connection that ends first leaves that
    out. Raises `LlmGarbage` for more than `most` of them."""
    count = 0
    async for line in _lines(response):
        if line == "[DONE]":
            yield None
            return
        count += 1
        if count > most:
            raise LlmGarbage("a stream that ends at max_tokens", f"more than {most} pieces")
        yield object_of(line.encode())


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """The data of a stream's server-sent events; comments and other fields are left out."""
    held = b""
    async for part in response.aiter_bytes():
        *lines, held = (held + part).split(b"\n")
        if len(held) > MAX_LINE_BYTES:
            raise LlmGarbage("a stream of lines", f"a line of more than {MAX_LINE_BYTES} bytes")
        for line in lines:
            field, _, value = line.rstrip(b"\r").partition(b":")
            if field == b"data":
                yield value.decode("utf-8", errors="replace").strip()
            elif field not in (b"", b"event", b"id", b"retry"):
                got = line[:SHOWN_CHARS].decode("utf-8", errors="replace")
                raise LlmGarbage("a stream of server-sent events", repr(got))


def _text(body: bytes) -> Json:
    return {TEXT: body.decode("utf-8", errors="replace")}


def object_of(body: bytes) -> Json:
    """The JSON object that `body` is. Raises `LlmGarbage` for anything else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        got = body[:SHOWN_CHARS].decode("utf-8", errors="replace")
        raise LlmGarbage("a JSON object", repr(got))
    return found
