"""A client's bytes and a transport without a network: what `gateway.transport.websocket.channel`
sees of a socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import uvicorn
from websockets import Frame, Opcode

from headstart.gateway.transport.uvicorn_hooks import ServerState
from headstart.gateway.transport.websocket.channel import RealtimeProtocol
from headstart.gateway.transport.websockets_hooks import unmask
from tests.virtual_loop import VirtualLoop

# Names in small letters, as `headstart.gateway.server.accept` passes a request on.
HANDSHAKE = (
    b"GET /v1/realtime HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\n"
    b"connection: Upgrade\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"sec-websocket-version: 13\r\n%s\r\n"
)


MASK = bytes([0x81, 0x85, 0x81, 0x80])  # the same each time; it looks like a frame's beginning


def frame(text: str | bytes, opcode: Opcode = Opcode.TEXT, fin: bool = True) -> bytes:
    """As a client sends it: masked."""
    data = text.encode() if isinstance(text, str) else text
    head = Frame(opcode, data, fin=fin).serialize(mask=False)[: -len(data) or None]
    return bytes([head[0], head[1] | 0x80]) + head[2:] + MASK + unmask(data, MASK)


class FakeTransport(asyncio.Transport):
    """Keeps what is written. What is `fed` while reading is paused waits, as in TCP."""

    def __init__(self, protocol: RealtimeProtocol, loop: VirtualLoop) -> None:
        super().__init__()
        self.protocol = protocol
        self.written = bytearray()
        self.is_lost = False
        self._loop = loop
        self._paused = False
        self._fed: list[bytes] = []

    def feed(self, data: bytes) -> None:
        """Bytes of the client's."""
        self._fed.append(data)
        self._deliver()

    def _deliver(self) -> None:
        while self._fed and not self._paused and not self.is_lost:
            self.protocol.data_received(self._fed.pop(0))

    def lose(self) -> None:
        """The connection breaks."""
        if not self.is_lost:
            self.is_lost = True
            self.protocol.connection_lost(ConnectionResetError("by a test"))

    # --- for the protocol ------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in ("peername", "sockname") else default

    def is_closing(self) -> bool:
        return self.is_lost

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._loop.call_soon(self._deliver)

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self._loop.call_soon(self.lose)

    abort = close


class Client:
    """One connection to an ASGI application."""

    def __init__(self, config: uvicorn.Config, loop: VirtualLoop, headers: bytes = b"") -> None:
        state = ServerState()
        self.protocol = RealtimeProtocol(config, state, {}, loop)
        self.transport = FakeTransport(self.protocol, loop)
        self.protocol.connection_made(self.transport)
        self.transport.feed(HANDSHAKE % headers)

    @property
    def _frames(self) -> list[tuple[int, bytes]]:
        """What the server has sent behind its handshake: unmasked frames, by opcode."""
        at = self.transport.written.find(b"\r\n\r\n") + 4
        data, frames = bytes(self.transport.written), []
        while at >= 4 and at + 2 <= len(data):
            opcode, size, at = data[at] & 15, data[at + 1], at + 2
            if size > 125:
                wide = 2 if size == 126 else 8
                size, at = int.from_bytes(data[at : at + wide], "big"), at + wide
            frames.append((opcode, data[at : at + size]))
            at += size
        return frames

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(data) for opcode, data in self._frames if opcode == Opcode.TEXT]

    @property
    def pongs(self) -> list[bytes]:
        return [data for opcode, data in self._frames if opcode == Opcode.PONG]

    @property
    def closed(self) -> tuple[int, str] | None:
        """Code and reason of the server's close frame."""
        for opcode, data in self._frames:
            if opcode == Opcode.CLOSE:
                return int.from_bytes(data[:2], "big"), data[2:].decode()
        return None
