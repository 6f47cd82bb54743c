"""Realtime sessions over WebSockets: uvicorn's protocol class, and one socket as a runner's
channel.

Inbound bound: received bytes are parsed in slices of `SLICE_BYTES`, the next one only when the
session has read the messages of the last one; TCP slows the peer down.

"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets import InvalidState

from headstart.gateway.connection.interfaces import TryInline
from headstart.gateway.connection.pending import PendingConnections
from headstart.gateway.runtime import tasks
from headstart.gateway.session.actions import Hangup
from headstart.gateway.transport.uvicorn_hooks import SocketConnection
from headstart.gateway.transport.websocket.fast_frame import fast_text
from headstart.gateway.transport.websocket.inbox import Inbox

log = logging.getLogger("headstart.websocket")

CLOSE_WAIT_S = 2.0
"""How long a close frame may take to be written, in s; then the connection is dropped."""
CLOSE_REASON_BYTES_MAX = 123  # RFC 6455 §5.5: a control frame holds 125, the code takes 2
SLICE_BYTES = 16 * 1024
"""A read may bring 256 KiB of tiny messages, which would block the loop for 40 ms."""
ABORT_EXTENSION = "headstart.abort"
PING_EXTENSION = "headstart.ping"
INBOX_EXTENSION = "headstart.inbox"
WRITE_EXTENSION = "headstart.write"
UNREAD_EXTENSION = "headstart.unread"
REGISTERED_EXTENSION = "headstart.seated"
NORMAL_CLOSURE = 1000  # RFC 6455 §7.4.1; a page that is left or reloaded sends 1001


class RealtimeProtocol(SocketConnection):
    """uvicorn's WebSocket protocol, with three additions for the application: dropping the
    connection (if a peer stops reading, no close frame gets through), requesting a pong, and
    reporting that a session has it; until then the connection is pending
    (`gateway.connection.pending`). Received bytes are parsed in slices, common frames on the fast
    path, and only after the handshake.

    """

    stage = "upgrade"

    _backlog = b""  # received, not yet parsed; less than one read
    _held = False  # whether reading from the peer is paused
    _sliced_ns = 0  # when the last slice was parsed, or the backlog began
    _inbox: Inbox
    _pending: PendingConnections | None = None

    @property
    def waits_for_peer(self) -> bool:
        return self.is_being_closed

    @property
    def is_reading_paused(self) -> bool:
        return self._held

    def set_pending(self, pending: PendingConnections, since_s: float) -> None:
        """The connection is pending from now on; it has been open since `since_s`."""
        if not self.is_lost:
            self._pending = pending
            pending.add(self, since_s)

    def _set_registered(self) -> None:
        if self._pending is not None:
            self._pending.drop(self)

    def make_queue(self) -> Inbox:
        self._inbox = Inbox()
        return self._inbox

    def extensions(self) -> dict[str, Any]:
        return {
            ABORT_EXTENSION: self.cut,
            PING_EXTENSION: self.ping,
            INBOX_EXTENSION: self.next_message,
            WRITE_EXTENSION: self.write_text,
            UNREAD_EXTENSION: self.unread_since_ns,
            REGISTERED_EXTENSION: self._set_registered,
        }

    def data_received(self, data: bytes) -> None:
        take = self._inbox.try_inline
        free = take is not None or self._inbox.empty() or self.has_sent_close
        if free and not self._backlog and len(data) <= SLICE_BYTES:
            text = fast_text(data) if self.wants_message else None
            if text is not None:
                if take is None or not take(text):
                    self._inbox.put_nowait(text)
                return
            if self.handshake_over:
                self.parse(data)
                return
        if not self.handshake_begun:
            self.parse(data)
            return
        if not self._backlog:
            self._sliced_ns = time.monotonic_ns()
        self._backlog += data
        if not self._held:
            self._held = True
            self.wire.pause_reading()
        self._take_slice()

    def _take_slice(self) -> None:
        """Parse the next slice, unless the session still has messages of the last one to read."""
        if not self.handshake_over:
            return  # `sent` continues
        if self._backlog and not self.is_lost and (self._inbox.empty() or self.has_sent_close):
            piece, self._backlog = self._backlog[:SLICE_BYTES], self._backlog[SLICE_BYTES:]
            self._sliced_ns = time.monotonic_ns()
            self.parse(piece)
            self._go_on()

    def _go_on(self) -> None:
        """There is room again: parse the backlog first, then resume reading."""
        if not self.handshake_over or (not self._inbox.empty() and not self.has_sent_close):
            return
        if self._backlog:
            cut = lambda _: self.cut()  # noqa: E731
            self.event_loop.call_soon(tasks.guard(self._take_slice, "websocket", cut))
        elif self._held and not self.wire.is_closing():
            self._held = False
            self.wire.resume_reading()

    async def next_message(self, try_inline: TryInline | None = None) -> Any:
        """Returns ASGI messages, but a fast-path text as a plain string, which only
        `WebSocketChannel` understands. Only those are offered to `try_inline`."""
        message = await self._inbox.get(try_inline)
        if self._held:
            self._go_on()
        return message

    def unread_since_ns(self) -> int | None:
        """Since when received data has waited for the session; None: none waits."""
        if self._backlog and self._inbox.empty():
            return self._sliced_ns
        return self._inbox.unread_since_ns

    def sent(self) -> None:
        if self.has_sent_close or self._held:  # the peer's reply to a close may be in the backlog
            self._go_on()

    def lost(self) -> None:
        self._set_registered()
        self._backlog = b""


class WebSocketChannel:
    """One accepted socket."""

    def __init__(self, socket: WebSocket) -> None:
        self.finished = False
        """One side has closed it."""
        self._socket = socket
        # Bypasses Starlette, which inspects each message and needs two calls.
        self._receive = socket.scope["extensions"][INBOX_EXTENSION]
        self._write = socket.scope["extensions"][WRITE_EXTENSION]
        self._unread_since_ns = socket.scope["extensions"][UNREAD_EXTENSION]

    def registered(self) -> None:
        """A session has taken this connection."""
        self._socket.scope["extensions"][REGISTERED_EXTENSION]()

    async def receive(self, try_inline: TryInline | None = None) -> str | int | None:
        message = await self._receive(try_inline)
        if isinstance(message, str):
            return message
        if message["type"] == "websocket.disconnect":
            self.finished = self.finished or message.get("code") == NORMAL_CLOSURE
            return None
        text: str | None = message.get("text")
        return text if text is not None else len(message.get("bytes") or b"")

    @property
    def unread_since_ns(self) -> int | None:
        since_ns: int | None = self._unread_since_ns()
        return since_ns

    async def send(self, text: str) -> bool:
        try:
            await self._socket.send_text(text)
        except (WebSocketDisconnect, RuntimeError):
            # RuntimeError: Starlette's error for a send after the close.
            return False
        return True

    def try_send(self, data: bytes) -> bool:
        return bool(self._write(data))

    async def close(self, hangup: Hangup) -> None:
        """Close with the hangup's code and reason; drop a peer that does not read."""
        self.finished = True
        reason = hangup.reason.encode()[:CLOSE_REASON_BYTES_MAX].decode(errors="ignore")
        try:
            async with asyncio.timeout(CLOSE_WAIT_S):
                await self._socket.close(hangup.code, reason)
        except TimeoutError:
            log.info("a connection was cut: it reads nothing any more")
            self.cut()
        except (WebSocketDisconnect, RuntimeError):
            log.debug("a peer was gone before its close frame")

    async def answers(self, wait_s: float) -> bool:
        """Whether a ping gets its pong. The pong waits after messages that the session has not
        read, so a client that floods a busy engine may be taken for dead."""
        ping = self._socket.scope.get("extensions", {}).get(PING_EXTENSION)
        try:
            async with asyncio.timeout(wait_s):
                await ping()
        except (TimeoutError, InvalidState):
            return False
        return True

    def cut(self) -> None:
        """Drop the underlying connection."""
        abort = self._socket.scope.get("extensions", {}).get(ABORT_EXTENSION)
        if abort is not None:
            abort()
