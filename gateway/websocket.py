"""Realtime sessions over WebSockets: uvicorn's protocol, and one socket as a pump's channel.

Inbound bound: uvicorn reads one message ahead, and TCP holds the peer back.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from gateway.actions import Hangup

log = logging.getLogger("headstart.websocket")

CLOSE_WAIT_S = 2.0
"""How long a close frame may take to be written; then the connection is cut."""
CLOSE_REASON_BYTES_MAX = 123  # RFC 6455 §5.5: a control frame holds 125, the code takes 2
ABORT_EXTENSION = "headstart.abort"


class RealtimeProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, plus a way for the application to cut the connection: a peer
    that has stopped reading never lets a close frame through."""

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[ABORT_EXTENSION] = self.transport.abort


class WebSocketChannel:
    """One accepted socket."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def receive(self) -> str | int | None:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        return text if text is not None else len(message.get("bytes") or b"")

    async def send(self, text: str) -> bool:
        try:
            await self._socket.send_text(text)
        except (WebSocketDisconnect, RuntimeError):
            # RuntimeError: starlette's word for "after the close".
            return False
        return True

    async def close(self, hangup: Hangup) -> None:
        """Close with the hangup's code and reason; a peer that reads nothing any more is cut."""
        reason = hangup.reason.encode()[:CLOSE_REASON_BYTES_MAX].decode(errors="ignore")
        try:
            await asyncio.wait_for(self._socket.close(hangup.code, reason), CLOSE_WAIT_S)
        except TimeoutError:
            abort = self._socket.scope.get("extensions", {}).get(ABORT_EXTENSION)
            log.info("a connection was cut: it reads nothing any more")
            if abort is not None:
                abort()
        except (WebSocketDisconnect, RuntimeError):
            log.debug("a peer was gone before its close frame")
