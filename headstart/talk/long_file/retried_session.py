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
        gone_s, pause_s = None, PAUSE_S
        failing_s, tries = time.monotonic(), 0  # of `work`, from its first failure on
        while True:
            is_open = False
            try:
                session, state = await self._ready()
                is_open = True
                if gone_s is not None:
                    self._lost(None)
                    gone_s = None
                return await work(session, state)
            except AnswerFailed as failed:
                if not failed.may_pass:
                    raise
                error: Exception = failed
            except ServerRefused as refused:
                if self.model is None:
                    raise
                error = refused  # it took us once: it is full, or still starting
            except (ServerFailed, ServerUnreachable) as away:
                if self.model is None:
                    raise
                error = away
            await self.close()
            now_s = time.monotonic()
            if is_open:
                tries += 1
                failing_s = now_s if tries == 1 else failing_s
                if tries >= TRIES_MIN and now_s - failing_s > self._retry_for_s:
                    raise error
            if gone_s is None:
                gone_s = now_s
                self._lost(self._retry_for_s)
            if now_s - gone_s > self._retry_for_s:
                raise error
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

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
