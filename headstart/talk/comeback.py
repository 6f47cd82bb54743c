"""A talk's line that outlives its connection, where the server keeps sessions (docs/session.md).

It reads along: the token that the server offers, and the last event of each connection. When the
network ends one, the next is opened with them; what is to be sent waits meanwhile. What was sent
just before may be lost with the connection: `send` says which one it went over, so that who sent it
can tell. A server that says goodbye means it.
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
    """Events both ways. Iterating and sending raise `ConnectionLost` when the network ended it, and
    `ServerFailed` when the server did."""

    async def send(self, text: str, /) -> None: ...
    def __aiter__(self) -> AsyncIterator[str | bytes]: ...


class Track(Protocol):
    """Sound apart from the events; see `headstart.talk.webrtc`."""

    async def play(self, pcm24k: bytes) -> None: ...
    async def drained(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ResumeTicket:
    """What gets a client back into its session: the server's token, and the last event seen."""

    token: str
    last_event_id: str


Open = Callable[[ResumeTicket | None], AbstractAsyncContextManager[Connection]]
"""A new connection: a session's first, or its next with a ticket. Raises `TalkError`s."""


class ResumingConnection:
    """Made by `lasting`. `told` hears what a person should know: that the connection is lost and
    for how many seconds the server waits, and (None) that it is back."""

    def __init__(self, open_: Open, told: Callable[[float | None], None]) -> None:
        self._open = open_
        self._told = told
        self._line: Connection | None = None
        self._comebacks = 0
        self._stack = AsyncExitStack()
        self._up = asyncio.Event()
        self._ended: Exception | None = None
        self._token = ""
        self._keep_s = 0.0
        self._last_event_id = ""
        self._refusal: TalkError | None = None

    async def begin(self) -> None:
        self._line = await self._stack.enter_async_context(self._open(None))
        self._up.set()

    async def close(self) -> None:
        await self._stack.aclose()

    async def send(self, text: str, /) -> int:
        """How many connections had been lost before the one that it went over."""
        while True:
            line, comebacks = await self._ready(), self._comebacks
            try:
                await line.send(text)
                return comebacks
            except ConnectionLost:
                if line is self._line and self._ended is None:
                    self._up.clear()  # until whoever reads has noticed, too

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        while True:
            assert self._line is not None
            try:
                async for message in self._line:
                    self._note(message)
                    yield message
            except ConnectionLost as lost:
                await self._come_back(lost)
            except ServerFailed as failed:
                self.end(failed)
                raise

    async def play(self, pcm24k: bytes) -> None:
        await (await self._track()).play(pcm24k)

    async def drained(self) -> None:
        await (await self._track()).drained()

    async def _track(self) -> Track:
        return cast(Track, await self._ready())  # who plays has opened calls

    async def _ready(self) -> Connection:
        """The connection, when there is one. Raises what ended it once there never will be."""
        await self._up.wait()
        if self._ended is not None:
            raise self._ended
        assert self._line is not None
        return self._line

    def end(self, error: Exception) -> None:
        """Nobody reads any more: who sends, or waits to, gets `error`."""
        if self._ended is None:
            self._ended = error
        self._up.set()

    def _note(self, message: str | bytes) -> None:
        # What is wrong in an event is for who reads it to say.
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
            event = json.loads(message)
            self._last_event_id = event.get("event_id", self._last_event_id)
            if event.get("type") == "gateway.session.resumable":
                self._token, self._keep_s = event["token"], event["expires_after_ms"] / 1000

    async def _come_back(self, lost: ConnectionLost) -> None:
        """Raises `ServerFailed`, for good."""
        self._up.clear()
        if not self._token:
            self.end(lost)
            raise lost
        self._told(self._keep_s)
        try:
            async with asyncio.timeout(self._keep_s):
                self._line = await self._another()
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
        self._comebacks += 1
        self._told(None)
        self._up.set()

    async def _another(self) -> Connection:
        pause_s = FIRST_PAUSE_S
        await self._stack.aclose()  # what is left of the last one
        self._stack = AsyncExitStack()
        while True:
            ticket = ResumeTicket(self._token, self._last_event_id)
            began_s = time.monotonic()
            try:
                return await self._stack.enter_async_context(self._open(ticket))
            except ResumeRefused as refused:
                if not refused.in_use:  # the server has not noticed yet that it is lost
                    raise
            except TalkError as error:  # also a proxy's 502: its server may come back
                self._refusal = error
            await asyncio.sleep(max(0, began_s + pause_s - time.monotonic()))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


@contextlib.asynccontextmanager
async def lasting(
    open_: Open, told: Callable[[float | None], None]
) -> AsyncIterator[ResumingConnection]:
    """A connection that comes back. Raises `TalkError`s."""
    line = ResumingConnection(open_, told)
    try:
        await line.begin()
        yield line
    finally:
        await line.close()
