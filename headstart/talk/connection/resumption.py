"""A talk's resumable connection, if the server keeps sessions (docs/session.md).

It notes the token that the server offers and the last event of each connection. When the network
breaks one, the next one is opened with these; outgoing events wait meanwhile. Events sent just
before may be lost with the connection: `send` returns which connection an event went over, so that
the caller can tell. A close by the server is final.

"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Protocol, cast

from headstart.gateway.errors import ConnectionLost, ResumeRefused, ServerFailed, TalkError

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 4.0


class Connection(Protocol):
    """Events in both directions. Iterating and sending raise `ConnectionLost` if the network broke
    it, and `ServerFailed` if the server ended it."""

    async def send(self, text: str, /) -> None: ...
    def __aiter__(self) -> AsyncIterator[str | bytes]: ...


class Track(Protocol):
    """Audio separate from the events; see `headstart.talk.connection.webrtc`."""

    async def play(self, pcm24k: bytes) -> None: ...
    async def drained(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ResumeTicket:
    """What a client needs to resume its session: the server's token and the last received event."""

    token: str
    last_event_id: str


Open = Callable[[ResumeTicket | None], AbstractAsyncContextManager[Connection]]
"""Opens a connection: a session's first, or with a ticket its next. Raises `TalkError`s."""


class ResumableConnection:
    """Made by `resumable`. `lost` is called with what the user should know: the number of seconds
    that the server keeps a session whose connection is lost, and None when it is resumed."""

    def __init__(self, open_: Open, lost: Callable[[float | None], None]) -> None:
        self._open = open_
        self._lost = lost
        self._current: Connection | None = None
        self._resumptions = 0
        self._stack = AsyncExitStack()
        self._up = asyncio.Event()
        self._ended: Exception | None = None
        self._token = ""
        self._keep_s = 0.0
        self._last_event_id = ""
        self._refusal: TalkError | None = None

    async def begin(self) -> None:
        self._current = await self._stack.enter_async_context(self._open(None))
        self._up.set()

    async def close(self) -> None:
        await self._stack.aclose()

    async def send(self, text: str, /) -> int:
        """Send an event; returns how many connections had been lost before the one it went over."""
        while True:
            current, resumptions = await self._ready(), self._resumptions
            try:
                await current.send(text)
                return resumptions
            except ConnectionLost:
                if current is self._current and self._ended is None:
                    self._up.clear()  # until the reader has noticed, too

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        while True:
            assert self._current is not None
            try:
                async for message in self._current:
                    self._note(message)
                    yield message
            except ConnectionLost as lost:
                await self._resume(lost)
            except ServerFailed as failed:
                self.end(failed)
                raise

    async def play(self, pcm24k: bytes) -> None:
        await (await self._track()).play(pcm24k)

    async def drained(self) -> None:
        await (await self._track()).drained()

    async def _track(self) -> Track:
        return cast(Track, await self._ready())  # only a call plays

    async def _ready(self) -> Connection:
        """The connection, once there is one. Raises the final error if there will never be one."""
        await self._up.wait()
        if self._ended is not None:
            raise self._ended
        assert self._current is not None
        return self._current

    def end(self, error: Exception) -> None:
        """Reading has ended: current and later senders get `error`."""
        if self._ended is None:
            self._ended = error
        self._up.set()

    def _note(self, message: str | bytes) -> None:
        # The reader reports invalid events.
        wrong = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
        with contextlib.suppress(*wrong):
            event = json.loads(message)
            self._last_event_id = event.get("event_id", self._last_event_id)
            if event.get("type") == "gateway.session.resumable":
                self._token, self._keep_s = event["token"], event["expires_after_ms"] / 1000

    async def _resume(self, lost: ConnectionLost) -> None:
        """Resume the session. Raises `ServerFailed` if that is impossible."""
        self._up.clear()
        if not self._token:
            self.end(lost)
            raise lost
        self._lost(self._keep_s)
        try:
            async with asyncio.timeout(self._keep_s):
                self._current = await self._reopened()
        except TimeoutError as error:
            failed = ServerFailed(
                f"{lost}; in {self._keep_s:.0f} s it could not be made again, and longer the "
                f"server does not keep the conversation ({self._refusal or 'no answer'})"
            )
            self.end(failed)
            raise failed from error
        except ResumeRefused as refused:
            failed = ServerFailed(f"{lost}; the server does not let it go on: {refused}")
            self.end(failed)
            raise failed from refused
        self._resumptions += 1
        self._lost(None)
        self._up.set()

    async def _reopened(self) -> Connection:
        pause_s = FIRST_PAUSE_S
        await self._stack.aclose()  # clean up the last connection
        self._stack = AsyncExitStack()
        while True:
            ticket = ResumeTicket(self._token, self._last_event_id)
            began_s = time.monotonic()
            try:
                return await self._stack.enter_async_context(self._open(ticket))
            except ResumeRefused as refused:
                if not refused.in_use:  # the server has not noticed the loss yet
                    raise
            except TalkError as error:  # also a proxy's 502: its server may come back
                self._refusal = error
            await asyncio.sleep(max(0, began_s + pause_s - time.monotonic()))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


@contextlib.asynccontextmanager
async def resumable(
    open_: Open, lost: Callable[[float | None], None]
) -> AsyncIterator[ResumableConnection]:
    """A connection that resumes after a loss. Raises `TalkError`s."""
    connection = ResumableConnection(open_, lost)
    try:
        await connection.begin()
        yield connection
    finally:
        await connection.close()
