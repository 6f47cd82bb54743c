"""Requests over HTTP/1.1 as guests: how far each has come, and which may become a WebSocket.

What is no WebSocket handshake is told so at once; one that is stays a guest
(`headstart.gateway.connection.pending`) until a session has it.
"""

from __future__ import annotations

from typing import Any

from headstart.gateway.connection.pending import Guests
from headstart.gateway.transport.uvicorn_hooks import Headers, HttpConnection, SocketConnection
from headstart.gateway.transport.websocket.channel import RealtimeProtocol

# What the handshake's library reads of a request; it takes other bytes for an error of ours.
HANDSHAKE_HEADERS = (b"connection", b"upgrade", b"sec-websocket-")


class Http(HttpConnection):
    """One connection, until it becomes a WebSocket or ends."""

    def __init__(self, guests: Guests, *of_uvicorn: Any) -> None:
        super().__init__(*of_uvicorn)
        self._guests = guests

    @property
    def waits_for_peer(self) -> bool:
        """It has not sent its request to the end, or does not read the answer."""
        return self.owes_request or self.reads_slowly or self.is_leaving

    @property
    def stage(self) -> str:
        return "head" if self.owes_head else "exchange"

    def opened(self) -> None:
        self._guests.add(self, self.now_s())

    def lost(self) -> None:
        self._guests.drop(self)

    def answered(self) -> None:
        if self._guests.drop(self) is not None:
            self._guests.add(self, self.now_s())

    def upgraded(self, to: SocketConnection) -> None:
        assert isinstance(to, RealtimeProtocol)
        since_s = self._guests.drop(self)
        to.arrived(self._guests, self.now_s() if since_s is None else since_s)

    def no_handshake(self, method: bytes, version: bytes, headers: Headers) -> str | None:
        """RFC 6455 §4.1, as far as uvicorn does not look before it gives the connection away."""
        if method != b"GET":
            return "its method is not GET"
        if version != b"1.1":
            return "it is not of HTTP/1.1"
        for name, value in headers:
            if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
                return "it has a body"
            if name.startswith(HANDSHAKE_HEADERS) and not value.isascii():
                return f"its {name.decode()} has letters that are no ASCII"
        return None
