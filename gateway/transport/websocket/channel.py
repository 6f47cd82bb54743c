"""Realtime sessions over WebSockets: uvicorn's protocol, and one socket as a runner's channel.

Inbound bound: what a peer sends is taken apart by slices of `SLICE_BYTES`, the next one only when
the session has read the messages of the last; TCP holds the peer back.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from typing import Any, cast

from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.protocol import OPEN

from headstart.gateway.connection.interfaces import TryInline
from headstart.gateway.connection.pending import Guests
from headstart.gateway.runtime import tasks
from headstart.gateway.session.actions import Hangup
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
NOT_UTF8 = 1007
GOODBYE = 1000  # RFC 6455 §7.4.1; a page that is left or reloaded says 1001


class RealtimeProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, plus three things for the application: to cut the connection,
    as a peer that has stopped reading never lets a close frame through, to ask for a pong, and to
    say that a session has it: until then it is a guest (`gateway.connection.pending`). And reads
    are taken apart by slices, the usual ones the short way; none before the handshake is through.
    """

    stage = "upgrade"

    _asked: dict[bytes, asyncio.Future[None]]
    _backlog = b""  # read, and not yet taken apart; less than one read
    _held = False  # the peer is
    _parser_bytes = 0  # that the parser was given
    _whole_bytes = 0  # of them, up to the end of the last whole frame, or of the handshake
    _sliced_ns = 0  # when the last slice of the backlog was taken, or the backlog began
    _inbox: Inbox
    _guests: Guests | None = None

    @property
    def waits_for_peer(self) -> bool:
        return self.close_sent or self.transport.is_closing()

    def arrived(self, guests: Guests, since_s: float) -> None:
        """It is a guest from now on, and has been here since then."""
        if not self.disconnected:
            self._guests = guests
            guests.add(self, since_s)

    def cut(self) -> None:
        self.transport.abort()

    def _seated(self) -> None:
        if self._guests is not None:
            self._guests.drop(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._asked = {}
        self._inbox = Inbox()
        self.queue = cast(Any, self._inbox)
        self.read_paused = True  # uvicorn would stop reading after each message, at two syscalls
        take_in = self.conn.recv_frame

        def noted(frame: Frame) -> None:
            self._whole_bytes = self._parser_bytes - len(self.conn.reader.buffer)
            take_in(frame)

        self.conn.recv_frame = noted  # type: ignore[method-assign]
        super().connection_made(transport)

    def shutdown(self) -> None:
        """Unlike uvicorn's, which fails where no handshake is under way any more."""
        if self.handshake_complete:
            super().shutdown()
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            self._parse(data)
            self._refuse_no_request()
            return
        take = self._inbox.try_inline
        free = take is not None or self.queue.empty() or self.close_sent
        if free and self.handshake_complete and not self._backlog and len(data) <= SLICE_BYTES:
            text = fast_text(data) if self._is_between_messages() else None
            if text is None:
                self._parse(data)
            elif take is None or not take(text):
                self._inbox.put_nowait(text)
            return
        if not self._backlog:
            self._sliced_ns = time.monotonic_ns()
        self._backlog += data
        if not self._held:
            self._held = True
            self.transport.pause_reading()
        self._take_slice()

    def _parse(self, data: bytes) -> None:
        self._parser_bytes += len(data)
        super().data_received(data)

    def _refuse_no_request(self) -> None:
        """The parser has found no request in what it was given, and says so to nobody."""
        error = self.conn.handshake_exc
        if error is not None and not self.handshake_initiated:
            self.handshake_initiated = self.handshake_complete = self.close_sent = True
            told = f"This is no WebSocket handshake: {error.__cause__ or error}.\n"
            self.transport.write(self.conn.reject(400, told).serialize())
            self.transport.close()

    def _is_between_messages(self) -> bool:
        """The parser waits for the first byte of one, and somebody wants it. What it has read of a
        frame is in no buffer: only where the last one ended tells whether it has begun another."""
        between = self._whole_bytes == self._parser_bytes and self.conn.cur_size is None
        return between and self.conn.state is OPEN and not self.close_sent

    def _take_slice(self) -> None:
        """The next slice, unless the session has still to read what came of the last one."""
        if not self.handshake_complete:
            return  # `send` goes on
        if self._backlog and not self.disconnected and (self.queue.empty() or self.close_sent):
            piece, self._backlog = self._backlog[:SLICE_BYTES], self._backlog[SLICE_BYTES:]
            self._sliced_ns = time.monotonic_ns()
            self._parse(piece)
            self._go_on()

    def _go_on(self) -> None:
        """Whoever waits for room: the backlog first, then the peer."""
        if not self.handshake_complete or (not self.queue.empty() and not self.close_sent):
            return
        if self._backlog:
            cut = lambda _: self.transport.abort()  # noqa: E731
            self.loop.call_soon(tasks.guard(self._take_slice, "websocket", cut))
        elif self._held and not self.transport.is_closing():
            self._held = False
            self.transport.resume_reading()

    async def receive(self, try_inline: TryInline | None = None) -> Any:
        """ASGI's messages; a text that came the short way is a plain string, which only
        `WebSocketChannel` knows. Only those are offered to `try_inline`."""
        message = await self._inbox.get(try_inline)
        if self._held:
            self._go_on()
        return message

    def unread_since_ns(self) -> int | None:
        """Since when something of the peer's has waited for the session; None: nothing waits."""
        if self._backlog and self.queue.empty():
            return self._sliced_ns
        return self._inbox.unread_since_ns

    def write_text(self, data: bytes) -> bool:
        """Send a text message of UTF-8 now, past Starlette. False: nothing was sent, for the peer
        reads too slowly, or the connection is not open."""
        if self.close_sent or not self.writable.is_set() or self.transport.is_closing():
            return False
        if self.conn.state is not OPEN or not self.handshake_complete:
            return False
        self.conn.send_text(data)
        self.transport.write(b"".join(self.conn.data_to_send()))
        return True

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # with a refusal; uvicorn would call that an error
        if self.close_sent or self._held:  # the peer's answer to a goodbye may be in the backlog
            self._go_on()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        self._whole_bytes = self._parser_bytes - len(self.conn.reader.buffer)
        if self.response.status_code == 101:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[ABORT_EXTENSION] = self.transport.abort
            extensions[PING_EXTENSION] = self._ping
            extensions[INBOX_EXTENSION] = self.receive
            extensions[WRITE_EXTENSION] = self.write_text
            extensions[UNREAD_EXTENSION] = self.unread_since_ns
            extensions[SEATED_EXTENSION] = self._seated

    def keepalive_timeout(self) -> None:
        if not self._held:
            super().keepalive_timeout()
            return
        # Its pong may be among what we have not read: it is we who are late.
        self.pong_timer = self.pending_ping_payload = None
        self.schedule_ping()

    def send_receive_event_to_app(self) -> None:
        """As uvicorn's, which writes a traceback for each text that is no UTF-8."""
        data, self.frames = b"".join(self.frames), []
        if self.close_sent:
            return
        if self.curr_msg_data_type == "bytes":
            self.queue.put_nowait({"type": "websocket.receive", "bytes": data})
            return
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self.conn.send_close(NOT_UTF8)
            self.handle_parser_exception()
            return
        self.queue.put_nowait({"type": "websocket.receive", "text": text})

    def connection_lost(self, exc: Exception | None) -> None:
        self._seated()
        super().connection_lost(exc)
        # Parser and connection know each other: half a message of 32 MiB would wait for the
        # collector, which counts objects.
        self.frames, self._backlog = [], b""
        self.conn.reader.discard()

    def handle_pong(self, event: Frame) -> None:
        waiting = self._asked.pop(bytes(event.data), None)
        if waiting is None:
            super().handle_pong(event)
        elif not waiting.done():
            waiting.set_result(None)

    async def _ping(self) -> None:
        """Returns with the pong."""
        payload = secrets.token_bytes(8)  # uvicorn's own have four
        self._asked[payload] = waiting = self.loop.create_future()
        try:
            self.conn.send_ping(payload)
            self.transport.write(b"".join(self.conn.data_to_send()))
            await waiting
        finally:
            self._asked.pop(payload, None)


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
