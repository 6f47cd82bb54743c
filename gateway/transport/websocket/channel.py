"""Realtime sessions over WebSockets: uvicorn's protocol, and one socket as a runner's channel.

Inbound bound: what a peer sends is taken apart by slices of `SLICE_BYTES`, the next one only when
the session has read the messages of the last; TCP holds the peer back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect
from websockets import InvalidState

from headstart.gateway.connection.interfaces import TryInline
from headstart.gateway.connection.pending import Guests
from headstart.gateway.runtime import tasks
from headstart.gateway.session.actions import Hangup
from headstart.gateway.transport.uvicorn_hooks import SocketConnection
from headstart.gateway.transport.websocket.fast_frame import fast_text
from headstart.gateway.transport.websocket.inbox import Inbox

log = logging.getLogger("headstart.websocket")

CLOSE_WAIT_S = 2.0
"""How long a close frame may take to be written; then the connection is cut."""
CLOSE_REASON_BYTES_MAX = 123  # RFC 6455 §5.5: a control frame holds 125, the code takes 2
SLICE_BYTES = 16 * 1024
"""Tiny messages may come in reads of 256 KiB, each of which would block the loop for 40 ms."""
ABORT_EXTENSION = "headstart.abort"
PING_EXTENSION = "headstart.ping"
INBOX_EXTENSION = "headstart.inbox"
WRITE_EXTENSION = "headstart.write"
UNREAD_EXTENSION = "headstart.unread"
SEATED_EXTENSION = "headstart.seated"
GOODBYE = 1000  # RFC 6455 §7.4.1; a page that is left or reloaded says 1001


class RealtimeProtocol(SocketConnection):
    """uvicorn's WebSocket protocol, plus three things for the application: to cut the connection,
    as a peer that has stopped reading never lets a close frame through, to ask for a pong, and to
    say that a session has it: until then it is a guest (`gateway.connection.pending`). And reads
    are taken apart by slices, the usual ones the short way; none before the handshake is through.
    """

    stage = "upgrade"

    _backlog = b""  # read, and not yet taken apart; less than one read
    _held = False  # the peer is
    _sliced_ns = 0  # when the last slice of the backlog was taken, or the backlog began
    _inbox: Inbox
    _guests: Guests | None = None

    @property
    def waits_for_peer(self) -> bool:
        return self.is_leaving

    @property
    def holds_peer(self) -> bool:
        return self._held

    def arrived(self, guests: Guests, since_s: float) -> None:
        """It is a guest from now on, and has been here since then."""
        if not self.is_lost:
            self._guests = guests
            guests.add(self, since_s)

    def _seated(self) -> None:
        if self._guests is not None:
            self._guests.drop(self)

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
            SEATED_EXTENSION: self._seated,
        }

    def data_received(self, data: bytes) -> None:
        take = self._inbox.try_inline
        free = take is not None or self._inbox.empty() or self.goodbye_sent
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
        """The next slice, unless the session has still to read what came of the last one."""
        if not self.handshake_over:
            return  # `sent` goes on
        if self._backlog and not self.is_lost and (self._inbox.empty() or self.goodbye_sent):
            piece, self._backlog = self._backlog[:SLICE_BYTES], self._backlog[SLICE_BYTES:]
            self._sliced_ns = time.monotonic_ns()
            self.parse(piece)
            self._go_on()

    def _go_on(self) -> None:
        """Whoever waits for room: the backlog first, then the peer."""
        if not self.handshake_over or (not self._inbox.empty() and not self.goodbye_sent):
            return
        if self._backlog:
            cut = lambda _: self.cut()  # noqa: E731
            self.event_loop.call_soon(tasks.guard(self._take_slice, "websocket", cut))
        elif self._held and not self.wire.is_closing():
            self._held = False
            self.wire.resume_reading()

    async def next_message(self, try_inline: TryInline | None = None) -> Any:
        """ASGI's messages; a text that came the short way is a plain string, which only
        `WebSocketChannel` knows. Only those are offered to `try_inline`."""
        message = await self._inbox.get(try_inline)
        if self._held:
            self._go_on()
        return message

    def unread_since_ns(self) -> int | None:
        """Since when something of the peer's has waited for the session; None: nothing waits."""
        if self._backlog and self._inbox.empty():
            return self._sliced_ns
        return self._inbox.unread_since_ns

    def sent(self) -> None:
        if self.goodbye_sent or self._held:  # the peer's answer to a goodbye may be in the backlog
            self._go_on()

    def lost(self) -> None:
        self._seated()
        self._backlog = b""


class WebSocketChannel:
    """One accepted socket."""

    def __init__(self, socket: WebSocket) -> None:
        self.finished = False
        """One side has said goodbye."""
        self._socket = socket
        # Past starlette, which would look at each message and make two calls of it.
        self._receive = socket.scope["extensions"][INBOX_EXTENSION]
        self._write = socket.scope["extensions"][WRITE_EXTENSION]
        self._unread_since_ns = socket.scope["extensions"][UNREAD_EXTENSION]

    def registered(self) -> None:
        """A session has it from now on."""
        self._socket.scope["extensions"][SEATED_EXTENSION]()

    async def receive(self, try_inline: TryInline | None = None) -> str | int | None:
        message = await self._receive(try_inline)
        if isinstance(message, str):
            return message
        if message["type"] == "websocket.disconnect":
            self.finished = self.finished or message.get("code") == GOODBYE
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
            # RuntimeError: starlette's word for "after the close".
            return False
        return True

    def try_send(self, data: bytes) -> bool:
        return bool(self._write(data))

    async def close(self, hangup: Hangup) -> None:
        """Close with the hangup's code and reason; a peer that reads nothing any more is cut."""
        self.finished = True
        reason = hangup.reason.encode()[:CLOSE_REASON_BYTES_MAX].decode(errors="ignore")
        try:
            await asyncio.wait_for(self._socket.close(hangup.code, reason), CLOSE_WAIT_S)
        except TimeoutError:
            log.info("a connection was cut: it reads nothing any more")
            self.cut()
        except (WebSocketDisconnect, RuntimeError):
            log.debug("a peer was gone before its close frame")

    async def answers(self, wait_s: float) -> bool:
        """A ping's pong. It waits behind messages that the session has not read yet, so a client
        that floods a busy engine may be taken for gone."""
        ping = self._socket.scope.get("extensions", {}).get(PING_EXTENSION)
        try:
            await asyncio.wait_for(ping(), wait_s)
        except (TimeoutError, InvalidState):
            return False
        return True

    def cut(self) -> None:
        """End the connection under it."""
        abort = self._socket.scope.get("extensions", {}).get(ABORT_EXTENSION)
        if abort is not None:
            abort()
