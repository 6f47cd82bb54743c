"""What waits for one client to read it: a bounded queue between a session and its writer.

Nearly always nothing waits: then an event goes past the queue, and no task is woken for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from headstart.gateway.protocol import frames
from headstart.gateway.session.actions import Hangup, Send


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much may wait for one reader, how long a peer may send nothing (0: for ever), and how
    large one event may be."""

    events: int = 512
    bytes: int = 8 * 1024 * 1024
    idle_s: float = 0.0
    frame_bytes: int = frames.FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True)
class _Queued:
    text: str
    size_bytes: int
    action: Send


class Outbound:
    """The bounded queue between session and writer. Single consumer. `try_send` may take what is
    put while that waits for something, and says whether it has; not what wants a stamp, for what
    the stamp leads to comes behind all that is put together."""

    def __init__(self, bounds: Bounds, try_send: Callable[[bytes], bool] = lambda _: False) -> None:
        self.bounds = bounds
        self.waiting_bytes = 0
        self.hangup: Hangup | None = None
        self._queue: deque[_Queued] = deque()
        self._filled = asyncio.Event()
        self._try_send = try_send
        self._is_waited_for = False

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, action: Send) -> bool:
        """False: full, nothing was queued."""
        encoded = frames.encode(action.event, self.bounds.frame_bytes)
        free = self._is_waited_for and not self._queue and self.hangup is None
        if free and not action.wants_sent_stamp and self._try_send(encoded):
            return True
        full = (
            len(self._queue) >= self.bounds.events
            or self.waiting_bytes + len(encoded) > self.bounds.bytes
        )
        if full:
            return False
        self._queue.append(_Queued(encoded.decode(), len(encoded), action))
        self.waiting_bytes += len(encoded)
        self._filled.set()
        return True

    def end(self, hangup: Hangup, discard: bool) -> None:
        """No more after this. The first hangup wins. `discard` throws away what waits."""
        if discard:
            self.forget()
        if self.hangup is None:
            self.hangup = hangup
        self._filled.set()

    def forget(self) -> None:
        """Throw away what waits."""
        self._queue.clear()
        self.waiting_bytes = 0

    async def get(self) -> _Queued | None:
        """The next one; None after the last, when there is a hangup."""
        while not self._queue:
            if self.hangup is not None:
                return None
            self._filled.clear()
            self._is_waited_for = True
            try:
                await self._filled.wait()
            finally:
                self._is_waited_for = False
        item = self._queue.popleft()
        self.waiting_bytes -= item.size_bytes
        return item
