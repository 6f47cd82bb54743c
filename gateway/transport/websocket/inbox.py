"""A queue of received messages with one reader.

It replaces the `asyncio.Queue` of uvicorn's sockets, at a third of the cost. Its owner bounds it:
`gateway.transport.websocket.channel` parses nothing more while a message waits.

"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any


class Inbox:
    """`put_nowait` never blocks; only one task at a time may call `get`."""

    def __init__(self) -> None:
        self._messages: deque[Any] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._unread_since_ns = 0
        self.try_inline: Callable[[str], bool] | None = None
        """Set while the reader waits: may take a message in place of the queue, and returns whether
        it did. Waking a task costs as much as processing an audio packet."""

    def empty(self) -> bool:
        return not self._messages

    @property
    def unread_since_ns(self) -> int | None:
        """Since when a message has waited and none was taken; None: none waits."""
        return self._unread_since_ns if self._messages else None

    def put_nowait(self, message: Any) -> None:
        if not self._messages:
            self._unread_since_ns = time.monotonic_ns()
        self._messages.append(message)
        self.try_inline = None
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def get(self, try_inline: Callable[[str], bool] | None = None) -> Any:
        """The next message. While this waits, `try_inline` may take others."""
        while not self._messages:
            assert self._reader is None, "two read one inbox"
            self._reader, self.try_inline = asyncio.get_running_loop().create_future(), try_inline
            try:
                await self._reader
            finally:
                self._reader = self.try_inline = None
        message = self._messages.popleft()
        if self._messages:
            self._unread_since_ns = time.monotonic_ns()
        return message
