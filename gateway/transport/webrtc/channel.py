"""A WebRTC data channel as a runner's channel.

Bounds: outbound, `BUFFERED_BYTES` are handed to SCTP before the runner's writer waits and its own
queue fills. Inbound, `INBOUND_BYTES` of messages may wait for the reader; more end the call. A
message has at most `frames.CHANNEL_BYTES_MAX`, because browsers close a channel that receives more.

"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable

from aiortc import RTCDataChannel
from aiortc.exceptions import InvalidStateError

from headstart.gateway.connection.interfaces import TryInline
from headstart.gateway.protocol import frames
from headstart.gateway.session.actions import Hangup

log = logging.getLogger("headstart.rtc")

LABEL = "oai-events"
BUFFERED_BYTES = 64 * 1024
INBOUND_BYTES = 8 * 1024 * 1024
FLUSH_WAIT_S = 1.0
"""How long the peer may take to receive the last messages before the call ends, in s."""


class EventChannel:
    """The call's channel for events: it exists before the peer opens the data channel, and without
    one.

    `expected`: the peer's offer has a data channel, so events wait for it; otherwise they are
    dropped. `ask`: whether the peer responds on the network.

    """

    def __init__(self, expected: bool, ask: Callable[[], Awaitable[bool]]) -> None:
        self.expected = expected
        self.is_gone = False
        self.finished = False
        """One side has hung up."""
        self.hangup: Hangup | None = None
        """Why our side ended it, if it did."""
        self._ask = ask
        self._channel: RTCDataChannel | None = None
        self._inbound: deque[str | int] = deque()
        self._inbound_bytes = 0
        self._unread_since_ns = 0
        self._changed = asyncio.Event()
        self._arrived = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self._channel is not None and self._channel.readyState == "open"

    def adopt(self, channel: RTCDataChannel) -> None:
        """The peer has opened a channel. Only the first of that name is used."""
        if self._channel is not None or channel.label != LABEL:
            return
        self._channel = channel
        channel.bufferedAmountLowThreshold = BUFFERED_BYTES // 2
        channel.on("message", self._message)
        channel.on("bufferedamountlow", self._changed.set)
        channel.on("close", self.mark_closed)
        self._changed.set()

    def mark_closed(self) -> None:
        """The peer is gone, or the call ends: nothing more is sent or received."""
        self.is_gone = True
        self._changed.set()
        self._arrived.set()

    def _message(self, data: str | bytes) -> None:
        size_bytes = len(data) if isinstance(data, bytes) else 4 * len(data)
        self._inbound_bytes += size_bytes
        if self._inbound_bytes > INBOUND_BYTES:
            log.warning("a call ends: over %d bytes of events wait to be read", INBOUND_BYTES)
            self.mark_closed()
            return
        if not self._inbound:
            self._unread_since_ns = time.monotonic_ns()
        self._inbound.append(len(data) if isinstance(data, bytes) else data)
        self._arrived.set()

    async def receive(self, try_inline: TryInline | None = None) -> str | int | None:
        while not self._inbound or self.is_gone:
            if self.is_gone:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        message = self._inbound.popleft()
        self._unread_since_ns = time.monotonic_ns()
        self._inbound_bytes -= 4 * len(message) if isinstance(message, str) else message
        return message

    @property
    def unread_since_ns(self) -> int | None:
        return self._unread_since_ns if self._inbound else None

    async def send(self, text: str) -> bool:
        if not self.expected:
            return not self.is_gone
        while not self.is_gone and not self._has_room():
            self._changed.clear()
            await self._changed.wait()
        if self.is_gone or self._channel is None:
            return False
        most = frames.CHANNEL_BYTES_MAX
        if len(text) * 4 > most and len(text.encode()) > most:  # the session began on a WebSocket
            text = frames.encode(json.loads(text), most).decode()
        try:
            self._channel.send(text)
        except (InvalidStateError, ValueError, ConnectionError) as error:
            # A stream with a gap is worse than none. The session may resume over another
            # connection.
            log.warning("a call ends: an event could not be sent: %r", error)
            self.mark_closed()
            return False
        return True

    def try_send(self, data: bytes) -> bool:
        return False  # responses' audio does not go here, and other events are few

    def _has_room(self) -> bool:
        return self.is_open and self._channel.bufferedAmount < BUFFERED_BYTES  # type: ignore[union-attr]

    async def close(self, hangup: Hangup) -> None:
        """Give sent messages a moment to arrive. A data channel has no close code; the peer sees
        the call end."""
        log.info("a call is ended: %s", hangup.reason)
        self.hangup = hangup
        self.finished = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_WAIT_S):
                while self.is_open and self._channel.bufferedAmount:  # type: ignore[union-attr]
                    await asyncio.sleep(0.01)
        self.mark_closed()

    async def answers(self, wait_s: float) -> bool:
        try:
            async with asyncio.timeout(wait_s):
                return await self._ask()
        except TimeoutError:
            return False

    def cut(self) -> None:
        self.mark_closed()
