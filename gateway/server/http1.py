"""HTTP/1.1 requests as pending connections: their stage, and which may become a WebSocket.

An invalid WebSocket handshake is refused at once. A valid one stays pending
(`headstart.gateway.connection.pending`) until it has a session.

"""

from __future__ import annotations

from typing import Any

from headstart.gateway.connection.pending import PendingConnections
from headstart.gateway.transport.uvicorn_hooks import Headers, HttpConnection, SocketConnection
from headstart.gateway.transport.websocket.channel import RealtimeProtocol

# The characters that the handshake library accepts; it treats others as an internal error.
HANDSHAKE_HEADERS = (b"connection", b"upgrade", b"sec-websocket-")


class Http(HttpConnection):
    """One connection, until it becomes a WebSocket or ends."""

    def __init__(self, pending: PendingConnections, *of_uvicorn: Any) -> None:
        super().__init__(*of_uvicorn)
        self._pending = pending

    @property
    def waits_for_peer(self) -> bool:
        """Whether the request is incomplete, or the peer does not read the response."""
        return self.owes_request or self.reads_slowly or self.is_being_closed

    @property
    def stage(self) -> str:
        return "head" if self.owes_head else "exchange"

    def opened(self) -> None:
        self._pending.add(self, self.now_s())

    def lost(self) -> None:
        self._pending.drop(self)

    def answered(self) -> None:
        if self._pending.drop(self) is not None:
            self._pending.add(self, self.now_s())

    def upgraded(self, to: SocketConnection) -> None:
        assert isinstance(to, RealtimeProtocol)
        since_s = self._pending.drop(self)
        to.set_pending(self._pending, self.now_s() if since_s is None else since_s)

    def handshake_problem(self, method: bytes, version: bytes, headers: Headers) -> str | None:
        """Checks of RFC 6455 §4.1 that uvicorn omits before it hands over the connection."""
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
