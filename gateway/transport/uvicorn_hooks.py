"""The one place that reaches into uvicorn's private parts, and into the h11 connection in one of
them. What subclasses and others need has a name of ours here.

    Server            lets in, sees out and is told to leave in ways of a subclass's own
    HttpConnection    one HTTP/1.1 connection: what it is at, and what becomes of it
    SocketConnection  one WebSocket: the bytes before its parser and the messages behind it
    connections, answering, tls    of a server's state, and of its settings

Written for uvicorn 0.54 and h11 0.16. `tests/gateway/transport/test_uvicorn_hooks.py` names each
private part, so that a release that moves one says so there and not in a session.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
from collections.abc import Sequence
from types import FrameType
from typing import Any, Protocol, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets import Frame, Request, State

from headstart.gateway.transport.websockets_hooks import FrameBounds

__all__ = [
    "ClientDisconnected",
    "HttpConnection",
    "MessageQueue",
    "Server",
    "ServerState",
    "SocketConnection",
    "answering",
    "connections",
    "tls",
]

Headers = Sequence[tuple[bytes, bytes]]
NOT_UTF8 = 1007  # RFC 6455 §7.4.1
OPEN = State.OPEN


def connections(state: ServerState) -> set[HttpConnection | SocketConnection]:
    """All that are open; the server's own set, so it changes."""
    return cast("set[HttpConnection | SocketConnection]", state.connections)


def answering(state: ServerState) -> set[asyncio.Task[None]]:
    """The tasks that run the application; the server's own set, so it changes."""
    return state.tasks


def tls(config: uvicorn.Config) -> ssl.SSLContext | None:
    """None: connections are in the clear. For a `config` that is loaded."""
    return config.ssl


class Server(uvicorn.Server):
    """uvicorn's loop, its signal handlers and its `Date` header, without its way of accepting
    connections, which lets everybody in, and of ending them, which waits for ever, fails over some
    and reports those it has to give up as errors."""

    def let_in(self, listening: socket.socket) -> None:
        """Begin to accept on a socket that listens."""
        raise NotImplementedError

    async def let_in_no_more(self) -> None:
        """Stop accepting; the socket is closed next."""
        raise NotImplementedError

    async def see_out(self, grace_s: float) -> None:
        """End all connections, and give answers that are under way so much time."""
        raise NotImplementedError

    def signalled(self) -> None:
        """SIGTERM or SIGINT came. In a signal handler."""
        raise NotImplementedError

    def end(self) -> None:
        """See everybody out from the next tick on."""
        self.should_exit = True

    def hurry(self) -> None:
        """The same, without waiting for anybody."""
        self.should_exit = self.force_exit = True

    @property
    def hurries(self) -> bool:
        """Nobody is waited for any more."""
        return self.force_exit

    @property
    def state(self) -> ServerState:
        """Its connections and tasks."""
        return self.server_state

    # --- called by uvicorn ------------------------------------------------------------------------

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is not None
        await self.lifespan.startup()
        (listening,) = sockets
        self.let_in(listening)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.let_in_no_more()
        for listening in sockets or ():
            listening.close()
        await self.see_out(self.config.timeout_graceful_shutdown or 0)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.signalled()


class HttpConnection(H11Protocol):
    """One HTTP/1.1 connection, with the ways closed in which uvicorn loses sight of one or fails.
    What a client sends right behind its upgrade request, uvicorn drops; here the session gets it.
    """

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config=config, server_state=state, app_state={})

    # --- what a subclass is told ------------------------------------------------------------------

    def opened(self) -> None:
        """The connection is there."""

    def lost(self) -> None:
        """It is no more."""

    def answered(self) -> None:
        """An answer is out; the next request may come."""

    def upgraded(self, to: SocketConnection) -> None:
        """It goes on as a WebSocket."""

    def no_handshake(self, method: bytes, version: bytes, headers: Headers) -> str | None:
        """Why a request to become a WebSocket is not fit to be one; None: it may be."""
        raise NotImplementedError

    # --- what it is at ----------------------------------------------------------------------------

    @property
    def owes_head(self) -> bool:
        """Its request's first lines are not all there."""
        return self.conn.their_state is h11.IDLE

    @property
    def owes_request(self) -> bool:
        """Its request is not all there."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def reads_slowly(self) -> bool:
        """The answer waits for it."""
        return self.flow.write_paused

    @property
    def is_leaving(self) -> bool:
        """It is being closed."""
        return self.transport.is_closing()

    def now_s(self) -> float:
        """The loop's."""
        return self.loop.time()

    def cut(self) -> None:
        """End it at once."""
        self.transport.abort()

    # --- called by uvicorn ------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.opened()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self.answered()
        super().on_response_complete()

    def shutdown(self) -> None:
        """Unlike uvicorn's, which tells h11 what that may not want to hear."""
        if self.cycle is None or self.cycle.response_complete or self.owes_request:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Unlike uvicorn's, which fails where an answer is under way or out, and lets the
        application answer a second time."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        elif self.conn.our_state is h11.SEND_BODY:
            self.transport.abort()
        else:
            self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Unlike uvicorn's, which writes two warnings: anybody could fill the log with them."""

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        wrong = self.no_handshake(event.method, event.http_version, self.headers)
        if wrong is not None:
            self.send_400_response(f"This is no WebSocket handshake: {wrong}.")
            return
        early, _ = self.conn.trailing_data
        super().handle_websocket_upgrade(event)
        to = cast(SocketConnection, self.transport.get_protocol())
        self.upgraded(to)
        if early:
            to.data_received(early)


class MessageQueue(Protocol):
    """Where a WebSocket's messages go that the application has not read yet."""

    def put_nowait(self, message: Any) -> None:
        """Never waits: what bounds it is its owner's affair."""


class SocketConnection(WebSocketsSansIOProtocol):
    """One WebSocket. It reads on whatever waits in its queue: a subclass pauses the peer."""

    _pongs: dict[bytes, asyncio.Future[None]]
    _bounds: FrameBounds

    # --- what a subclass says and is told ---------------------------------------------------------

    def make_queue(self) -> MessageQueue:
        """Of a new connection. `next_message` reads it."""
        raise NotImplementedError

    async def next_message(self) -> Any:
        """An ASGI message, for the application."""
        raise NotImplementedError

    @property
    def holds_peer(self) -> bool:
        """What the peer sends is not read at present."""
        return False

    def extensions(self) -> dict[str, Any]:
        """What the application finds in the scope of an accepted connection."""
        return {}

    def sent(self) -> None:
        """Something of the application's was sent."""

    def lost(self) -> None:
        """The connection is no more."""

    # --- what it is at ----------------------------------------------------------------------------

    @property
    def handshake_begun(self) -> bool:
        """A request was read."""
        return self.handshake_initiated

    @property
    def handshake_over(self) -> bool:
        """It was answered."""
        return self.handshake_complete

    @property
    def goodbye_sent(self) -> bool:
        """A close frame or a refusal was."""
        return self.close_sent

    @property
    def is_lost(self) -> bool:
        return self.disconnected

    @property
    def is_leaving(self) -> bool:
        """We have said goodbye, or it is being closed."""
        return self.close_sent or self.transport.is_closing()

    @property
    def wants_message(self) -> bool:
        """The parser stands between two messages, and somebody wants the next one."""
        if not self._bounds.between_messages or self.close_sent:
            return False
        return self.conn.state is OPEN

    # --- what can be done with it -----------------------------------------------------------------

    @property
    def wire(self) -> asyncio.Transport:
        return self.transport

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    def cut(self) -> None:
        """End it at once."""
        self.transport.abort()

    def parse(self, data: bytes) -> None:
        """Give bytes of the peer's to the parser; what is whole of them goes to the queue."""
        self._bounds.given(len(data))
        super().data_received(data)
        if not self.handshake_initiated:
            self._refuse_no_request()

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

    async def ping(self) -> None:
        """Returns with the pong. Raises `websockets.InvalidState` where nothing can be sent."""
        payload = secrets.token_bytes(8)  # uvicorn's own have four
        self._pongs[payload] = waiting = self.loop.create_future()
        try:
            self.conn.send_ping(payload)
            self.transport.write(b"".join(self.conn.data_to_send()))
            await waiting
        finally:
            self._pongs.pop(payload, None)

    def _refuse_no_request(self) -> None:
        """The parser has found no request in what it was given, and says so to nobody."""
        error = self.conn.handshake_exc
        if error is not None:
            self.handshake_initiated = self.handshake_complete = self.close_sent = True
            told = f"This is no WebSocket handshake: {error.__cause__ or error}.\n"
            self.transport.write(self.conn.reject(400, told).serialize())
            self.transport.close()

    # --- called by uvicorn ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pongs = {}
        self._bounds = FrameBounds(self.conn)
        self.queue = cast(Any, self.make_queue())
        self.read_paused = True  # uvicorn would stop reading after each message, at two syscalls
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost()
        super().connection_lost(exc)
        self.frames = []
        self._bounds.forget()

    def shutdown(self) -> None:
        """Unlike uvicorn's, which fails where no handshake is under way any more."""
        if self.handshake_complete:
            super().shutdown()
        else:
            self.transport.close()

    async def receive(self) -> Any:
        return await self.next_message()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # with a refusal; uvicorn would call that an error
        self.sent()

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        self._bounds.mark()
        if self.response.status_code == 101:
            added: dict[str, Any] = self.scope["extensions"]
            added |= self.extensions()

    def handle_pong(self, event: Frame) -> None:
        waiting = self._pongs.pop(bytes(event.data), None)
        if waiting is None:
            super().handle_pong(event)
        elif not waiting.done():
            waiting.set_result(None)

    def keepalive_timeout(self) -> None:
        if not self.holds_peer:
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
