"""uvicorn's HTTP/1.1, with the ways closed in which a connection is lost sight of or fails.

upgrade   what is no WebSocket handshake is told so at once; one that is stays a guest
          (`headstart.gateway.connection.pending`) until a session has it
400       also behind an answer, and while one is under way
shutdown  whatever the connection is at
"""

from __future__ import annotations

import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from headstart.gateway.connection.pending import Guests
from headstart.gateway.transport.websocket.channel import RealtimeProtocol

log = logging.getLogger("headstart.accept")

# What the handshake's library reads of a request; it takes other bytes for an error of ours.
HANDSHAKE_HEADERS = (b"connection", b"upgrade", b"sec-websocket-")


class Http(H11Protocol):
    """One connection. What a client sends right behind its upgrade request, uvicorn drops; here
    the session gets it."""

    def __init__(self, *, guests: Guests, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._guests = guests

    @property
    def waits_for_peer(self) -> bool:
        """It has not sent its request to the end, or does not read the answer."""
        return self._owes_request or self.flow.write_paused or self.transport.is_closing()

    @property
    def _owes_request(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def stage(self) -> str:
        return "head" if self.conn.their_state is h11.IDLE else "exchange"

    def cut(self) -> None:
        self.transport.abort()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._guests.add(self, self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        self._guests.drop(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        if self._guests.drop(self) is not None:
            self._guests.add(self, self.loop.time())
        super().on_response_complete()

    def shutdown(self) -> None:
        """Unlike uvicorn's, which tells h11 what that may not want to hear."""
        if self.cycle is None or self.cycle.response_complete or self._owes_request:
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
        log.debug("an upgrade to something else was asked for")

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        wrong = self._no_handshake(event)
        if wrong is not None:
            self.send_400_response(f"This is no WebSocket handshake: {wrong}.")
            return
        since_s = self._guests.drop(self)
        early, _ = self.conn.trailing_data
        super().handle_websocket_upgrade(event)
        protocol: RealtimeProtocol = self.transport.get_protocol()  # type: ignore[assignment]
        protocol.arrived(self._guests, self.loop.time() if since_s is None else since_s)
        if early:
            protocol.data_received(early)

    def _no_handshake(self, event: h11.Request) -> str | None:
        """RFC 6455 §4.1, as far as uvicorn does not look before it gives the connection away."""
        if event.method != b"GET":
            return "its method is not GET"
        if event.http_version != b"1.1":
            return "it is not of HTTP/1.1"
        for name, value in self.headers:
            if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
                return "it has a body"
            if name.startswith(HANDSHAKE_HEADERS) and not value.isascii():
                return f"its {name.decode()} has letters that are no ASCII"
        return None
