"""What a peer has said and its session has not read yet: a queue with one reader.

It stands in for the `asyncio.Queue` that uvicorn puts a socket's messages into, at a third of the
cost. Its bound is its owner's: `gateway.websocket` takes nothing more apart while one waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class Inbox:
    """`put_nowait` never blocks; `get` is for one task at a time."""

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._at_once: Callable[[str], bool] | None = None

    def empty(self) -> bool:
        return not self._messages

    def offer(self, text: str) -> None:
        """`put_nowait`, unless the reader waits and takes it at once."""
        waits = self._reader is not None and not self._messages
        if not (waits and self._at_once is not None and self._at_once(text)):
            self.put_nowait(text)

    def put_nowait(self, message: Any) -> None:
        self._messages.append(message)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def get(self, at_once: Callable[[str], bool] | None = None) -> Any:
        """The next message. While this waits for one, `at_once` may take what is offered, and says
        whether it has: to wake a task costs as much as to hear a packet of sound."""
        while not self._messages:
            assert self._reader is None, "two read one inbox"
            self._reader, self._at_once = asyncio.get_running_loop().create_future(), at_once
            try:
                await self._reader
            finally:
                self._reader = self._at_once = None
        return self._messages.popleft()
