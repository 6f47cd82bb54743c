"""The bounded queue of events from a session to its client.

The queue is usually empty: then an event bypasses it, and no task is woken.

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
    """Limits of the queue (events, bytes) and of one event's size, and how long a peer may send
    nothing, in s (0: no limit)."""

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
    """The bounded queue between session and writer, for a single consumer. While `get` waits, `put`
    offers events to `try_send`, which returns whether it sent them. Events that want a stamp are
    always queued: the events caused by the stamp must follow those put at the same time."""

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
        """False: the queue is full, nothing was added."""
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
        """Accept nothing more. Only the first hangup counts. `discard` drops what is queued."""
        if discard:
            self.forget()
        if self.hangup is None:
            self.hangup = hangup
        self._filled.set()

    def forget(self) -> None:
        """Drop what is queued."""
        self._queue.clear()
        self.waiting_bytes = 0

    async def get(self) -> _Queued | None:
        """The next event; None after the last one, once there is a hangup."""
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
