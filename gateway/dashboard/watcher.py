"""One watcher's queue between the hub and a socket or a file.

Bounds: `MESSAGES_MAX` and `BYTES_MAX`. When it is full the oldest go, for news is what is wanted,
and they are counted: every snapshot says how many were lost.
"""

from __future__ import annotations

import asyncio
from collections import deque

from headstart.gateway.dashboard.messages import Message

MESSAGES_MAX = 2_000
BYTES_MAX = 4 << 20


class Watcher:
    """The hub puts, one reader takes. On the loop. `wants_chunks`: each chunk of each session."""

    def __init__(
        self,
        *,
        wants_chunks: bool = False,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self.wants_chunks = wants_chunks
        self.dropped = 0
        self._messages_max, self._bytes_max = messages_max, bytes_max
        self._waiting: deque[Message] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self.goodbye: tuple[int, str] | None = None
        """It is sent away: a WebSocket's close code, and why."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: Message) -> None:
        self._waiting.append(message)
        self._bytes += len(message.line())
        while len(self._waiting) > self._messages_max or (
            self._bytes > self._bytes_max and len(self._waiting) > 1
        ):
            self._bytes -= len(self._waiting.popleft().line())
            self.dropped += 1
        self._filled.set()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come; what waits may still be taken."""
        return self.goodbye is not None

    def end(self, code: int, reason: str) -> None:
        """Send it away."""
        self.goodbye = self.goodbye or (code, reason)
        self._filled.set()

    async def wait(self) -> None:
        """Until there is something to take, or it is over."""
        while not self._waiting and not self.is_over:
            self._filled.clear()
            await self._filled.wait()

    def take(self) -> bytes | None:
        """The oldest message's line; None: there is none."""
        if not self._waiting:
            return None
        message = self._waiting.popleft()
        self._bytes -= len(message.line())
        return message.line(self.dropped)
