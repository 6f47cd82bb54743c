"""The only module that uses uvicorn's private parts, and in one of them h11's connection. It gives
our own names to what subclasses and other modules need.

    Server            accepting, closing and shutting down, for a subclass to implement
    HttpConnection    one HTTP/1.1 connection: its state and its events
    SocketConnection  one WebSocket: the bytes before its parser, the messages after it
    connections, answering, tls    parts of the server's state and settings

Written for uvicorn 0.54 and h11 0.16. `tests/gateway/transport/test_uvicorn_hooks.py` names each
private part, so that a release that moves one fails there and not in a session.

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
from websockets import Frame, InvalidState, Request, State

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
    """All open connections: the server's own set, which changes."""
    return cast("set[HttpConnection | SocketConnection]", state.connections)


def answering(state: ServerState) -> set[asyncio.Task[None]]:
    """The tasks that run the application: the server's own set, which changes."""
    return state.tasks


def tls(config: uvicorn.Config) -> ssl.SSLContext | None:
    """None: no TLS. `config` must be loaded."""
    return config.ssl


class Server(uvicorn.Server):
    """uvicorn's loop, signal handlers and `Date` header. Replaces how it accepts connections, which
    has no limits, and how it closes them: uvicorn waits without limit, fails on some connections,
    and logs those it gives up on as errors."""

    def start_accepting(self, listening: socket.socket) -> None:
        """Begin to accept on a listening socket."""
        raise NotImplementedError

    async def stop_accepting(self) -> None:
        """Stop accepting; the socket is closed next."""
        raise NotImplementedError

    async def close_connections(self, grace_s: float) -> None:
        """Close all connections, giving running responses up to `grace_s`."""
        raise NotImplementedError

    def on_signal(self) -> None:
        """SIGTERM or SIGINT arrived. Called in a signal handler."""
        raise NotImplementedError

    def end(self) -> None:
        """Begin the shutdown at the next tick."""
        self.should_exit = True

    def end_now(self) -> None:
        """The same, without waiting for running responses."""
        self.should_exit = self.force_exit = True

    @property
    def is_forced(self) -> bool:
        """Whether the shutdown no longer waits."""
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
        self.start_accepting(listening)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.stop_accepting()
        for listening in sockets or ():
            listening.close()
        await self.close_connections(self.config.timeout_graceful_shutdown or 0)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.on_signal()


class HttpConnection(H11Protocol):
    """One HTTP/1.1 connection. Fixes the cases in which uvicorn loses track of one or fails.
    uvicorn drops what a client sends right after its upgrade request; here the session gets it."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config=config, server_state=state, app_state={})

    # --- what a subclass is told ------------------------------------------------------------------

    def opened(self) -> None:
        """The connection was made."""

    def lost(self) -> None:
        """The connection is closed."""

    def answered(self) -> None:
        """A response was sent; the next request may come."""

    def upgraded(self, to: SocketConnection) -> None:
        """It continues as a WebSocket."""

    def handshake_problem(self, method: bytes, version: bytes, headers: Headers) -> str | None:
        """Why an upgrade request is not a valid WebSocket handshake; None: it may be one."""
        raise NotImplementedError

    # --- what it is at ----------------------------------------------------------------------------

    @property
    def owes_head(self) -> bool:
        """The request's line and headers are incomplete."""
        return self.conn.their_state is h11.IDLE

    @property
    def owes_request(self) -> bool:
        """The request is incomplete."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def reads_slowly(self) -> bool:
        """The response waits for the peer to read."""
        return self.flow.write_paused

    @property
    def is_being_closed(self) -> bool:
        """It is being closed."""
        return self.transport.is_closing()

    def now_s(self) -> float:
        """The loop's time, in s."""
        return self.loop.time()

    def cut(self) -> None:
        """Close it at once."""
        self.transport.abort()

    def abandon(self) -> None:
        """The task that was making this connection was cancelled. uvloop then closes the transport
        without telling its protocol, which may have been given it, and requests, already."""
        if self.transport is not None:
            protocol = cast("asyncio.Protocol", self.transport.get_protocol())
            if protocol in self.connections:
                protocol.connection_lost(None)

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
        """uvicorn's version puts h11 into states that it may reject."""
        if self.cycle is None or self.cycle.response_complete or self.owes_request:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's version fails if a response has been started or sent, and lets the application
        respond a second time."""
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
        """uvicorn's version logs two warnings, so that any client could fill the log."""

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        wrong = self.handshake_problem(event.method, event.http_version, self.headers)
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
    """The queue of a WebSocket's messages that the application has not read yet."""

    def put_nowait(self, message: Any) -> None:
        """Never waits; the owner bounds the queue."""


class SocketConnection(WebSocketsSansIOProtocol):
    """One WebSocket. It reads on however much is queued: a subclass must pause the peer."""

    _pongs: dict[bytes, asyncio.Future[None]]
    _bounds: FrameBounds

    # --- what a subclass says and is told ---------------------------------------------------------

    def make_queue(self) -> MessageQueue:
        """Make the queue of a new connection. `next_message` reads it."""
        raise NotImplementedError

    async def next_message(self) -> Any:
        """Returns the next ASGI message for the application."""
        raise NotImplementedError

    @property
    def is_reading_paused(self) -> bool:
        """Whether reading from the peer is paused."""
        return False

    def extensions(self) -> dict[str, Any]:
        """Extensions in the ASGI scope of an accepted connection."""
        return {}

    def sent(self) -> None:
        """The application has sent something."""

    def lost(self) -> None:
        """The connection is closed."""

    # --- what it is at ----------------------------------------------------------------------------

    @property
    def handshake_begun(self) -> bool:
        """Whether a request was read."""
        return self.handshake_initiated

    @property
    def handshake_over(self) -> bool:
        """Whether the request was answered."""
        return self.handshake_complete

    @property
    def has_sent_close(self) -> bool:
        """Whether a close frame or a refusal was sent."""
        return self.close_sent

    @property
    def is_lost(self) -> bool:
        return self.disconnected

    @property
    def is_being_closed(self) -> bool:
        """Whether we have started to close it, or it is being closed."""
        return self.close_sent or self.transport.is_closing()

    @property
    def wants_message(self) -> bool:
        """Whether the parser stands between two messages and the application waits for the next
        one."""
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
        """Close it at once."""
        self.transport.abort()

    def parse(self, data: bytes) -> None:
        """Feed received bytes to the parser; complete messages go to the queue."""
        self._bounds.given(len(data))
        super().data_received(data)
        if not self.handshake_initiated:
            self._refuse_no_request()

    def write_text(self, data: bytes) -> bool:
        """Send a text message of UTF-8 now, bypassing Starlette. False: nothing was sent, because
        the peer reads too slowly or the connection is not open."""
        if self.close_sent or not self.writable.is_set() or self.transport.is_closing():
            return False
        if self.conn.state is not OPEN or not self.handshake_complete:
            return False
        self.conn.send_text(data)
        self.transport.write(b"".join(self.conn.data_to_send()))
        return True

    async def ping(self) -> None:
        """Returns with the pong. Raises `websockets.InvalidState` if nothing can be sent."""
        if self.transport.is_closing():  # which the parser is not told before its last data is read
            raise InvalidState("the connection is closed")
        payload = secrets.token_bytes(8)  # uvicorn's own pings have four bytes
        self._pongs[payload] = waiting = self.loop.create_future()
        try:
            self.conn.send_ping(payload)
            self.transport.write(b"".join(self.conn.data_to_send()))
            await waiting
        finally:
            self._pongs.pop(payload, None)

    def _refuse_no_request(self) -> None:
        """The parser found no valid request and reported that to nobody: refuse it."""
        error = self.conn.handshake_exc
        if error is not None:
            self.handshake_initiated = self.handshake_complete = self.close_sent = True
            message = f"This is no WebSocket handshake: {error.__cause__ or error}.\n"
            self.transport.write(self.conn.reject(400, message).serialize())
            self.transport.close()

    # --- called by uvicorn ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pongs = {}
        self._bounds = FrameBounds(self.conn)
        self.queue = cast(Any, self.make_queue())
        self.read_paused = True  # uvicorn would pause after each message: two syscalls
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost()
        super().connection_lost(exc)
        self.frames = []
        self._bounds.forget()

    def shutdown(self) -> None:
        """uvicorn's version fails once the handshake is over."""
        if self.handshake_complete:
            super().shutdown()
        else:
            self.transport.close()

    async def receive(self) -> Any:
        return await self.next_message()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True  # with a refusal, which uvicorn would treat as an error
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
        if not self.is_reading_paused:
            super().keepalive_timeout()
            return
        # The pong may be in what we have not read yet: the delay is ours.
        self.pong_timer = self.pending_ping_payload = None
        self.schedule_ping()

    def send_receive_event_to_app(self) -> None:
        """As uvicorn's, which logs a traceback for each text that is not UTF-8."""
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
