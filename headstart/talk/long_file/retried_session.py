"""A session that is opened again when it is lost for good: what was asked is asked once more.

A connection that breaks is resumed by `connection.resumption`, where the server keeps sessions.
Where it cannot be (the server was started anew, or does not keep any), nothing is lost either: a
session holds nothing about the recording, and the part at hand is sent again.

"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Generic, TypeVar

from headstart.gateway.errors import ServerFailed, ServerRefused, ServerUnreachable
from headstart.talk.connection.resumption import resumable
from headstart.talk.connection.session import ClientSession, Event
from headstart.talk.connection.websocket import open_socket
from headstart.talk.long_file.out_of_band import AnswerFailed

RETRY_FOR_S = 120.0
"""How long a server may stay away."""
PAUSE_S = 1.0
PAUSE_MAX_S = 8.0
TRIES_MIN = 3
"""Of work that fails over a session that was there, however long one try takes."""
QUIET_WAIT_S = 600.0
"""A server that owes something and sends nothing for this long has failed. A long prompt takes a
large model minutes, and sends nothing meanwhile."""

T = TypeVar("T")
State = TypeVar("State")


class _Patience:
    """How long it is tried again, of one piece of work: `retry_for_s` without a session, and as
    long, in at least `TRIES_MIN` tries, over sessions that were there."""

    def __init__(self, retry_for_s: float) -> None:
        self._retry_for_s = retry_for_s
        self._gone_s: float | None = None  # since when there is no session that works
        self._failing_s = 0.0  # since when work over open sessions fails
        self._tries = 0
        self._pause_s = PAUSE_S

    def is_back(self) -> bool:
        """A session is open. Whether there was none before."""
        was_gone, self._gone_s = self._gone_s is not None, None
        return was_gone

    def fails(self, was_open: bool, now_s: float) -> bool:
        """A try failed, over a session that `was_open` or for lack of one. Whether that was the
        last."""
        if was_open:
            self._tries += 1
            self._failing_s = now_s if self._tries == 1 else self._failing_s
            if self._tries >= TRIES_MIN and now_s - self._failing_s > self._retry_for_s:
                return True
        return self._gone_s is not None and now_s - self._gone_s > self._retry_for_s

    def is_lost(self, now_s: float) -> bool:
        """There is no session that works. Whether that is news."""
        was_there = self._gone_s is None
        if was_there:
            self._gone_s = now_s
        return was_there

    def next_pause_s(self) -> float:
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_MAX_S)
        return pause_s


class RetriedSession(Generic[State]):
    """A session with the state of its events. `new`: makes that state, which has a method
    `receive`; `lost`: told when the session is lost, and for how long it will be tried again; None:
    there is one again."""

    def __init__(
        self,
        url: str,
        api_key: str,
        new: Callable[[], Any],
        settings: Event,
        gateway: Event,
        lost: Callable[[float | None], None],
        retry_for_s: float = RETRY_FOR_S,
    ) -> None:
        self._url, self._api_key, self._new = url, api_key, new
        self._settings, self._gateway, self._lost = settings, gateway, lost
        self._retry_for_s = retry_for_s
        self._stack = AsyncExitStack()
        self._open: tuple[ClientSession, Any] | None = None
        self.model: str | None = None
        """Of the session, as the server says."""

    async def use(self, work: Callable[[ClientSession, State], Awaitable[T]]) -> T:
        """Do `work` over the session, from its beginning again if the session is lost meanwhile.
        Raises `ServerRefused`, `AnswerFailed`, and what was wrong last if the server stays away, or
        if it is there and `work` fails each time for so long."""
        patience = _Patience(self._retry_for_s)
        while True:
            is_open = False
            try:
                session, state = await self._ready()
                is_open = True
                if patience.is_back():
                    self._lost(None)
                return await work(session, state)
            except (AnswerFailed, ServerRefused, ServerFailed, ServerUnreachable) as wrong:
                if not self._may_pass(wrong):
                    raise
                error = wrong
            await self.close()
            now_s = time.monotonic()
            if patience.fails(is_open, now_s):
                raise error
            if patience.is_lost(now_s):
                self._lost(self._retry_for_s)
            await asyncio.sleep(patience.next_pause_s())

    def _may_pass(self, error: Exception) -> bool:
        """Whether another try may succeed. A server that refuses, or is away, did take us once: it
        is full, or still starting."""
        if isinstance(error, AnswerFailed):
            return error.may_pass
        return self.model is not None

    async def _ready(self) -> tuple[ClientSession, Any]:
        if self._open is None:
            state = self._new()
            opening = opened(self._url, self._api_key, state.receive, self._lost)
            session = await self._stack.enter_async_context(opening)
            try:
                await session.configure(self._settings, self._gateway)
            except BaseException:
                await self.close()
                raise
            self.model = str(session.settings.get("model") or "")
            self._open = session, state
        return self._open

    async def close(self) -> None:
        """Close the session, if there is one."""
        self._open = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()


@asynccontextmanager
async def opened(
    url: str,
    api_key: str,
    receive: Callable[[Event], None],
    lost: Callable[[float | None], None],
) -> AsyncIterator[ClientSession]:
    """A session at a `realtime_url`; `lost`: see `ResumableConnection`. Raises `TalkError`s."""
    async with resumable(functools.partial(open_socket, url, api_key), lost) as connection:
        session = ClientSession(connection, receive, QUIET_WAIT_S)
        async with session.listening():
            yield session
