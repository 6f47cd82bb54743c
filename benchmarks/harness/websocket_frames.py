"""WebSocket client frames without a library; their zero mask costs neither side anything."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_HANDSHAKE = (
    "GET /v1/realtime?model={model} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Sec-WebSocket-Version: 13\r\n\r\n"
)
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
_FIN = 0x80
_MASKED = 0x80


def handshake(host: str, model: str = "fake") -> bytes:
    """A client's opening handshake, RFC 6455 §4.1; the model's name has no special characters."""
    return _HANDSHAKE.format(host=host, model=model).encode()


def text_frame(text: str) -> bytes:
    """One client text frame, RFC 6455 §5.2."""
    return frame(TEXT, text.encode())


def frame(opcode: int, payload: bytes) -> bytes:
    """One client frame of any opcode."""
    first, size = _FIN | opcode, len(payload)
    if size < 126:
        head = struct.pack("!BB", first, _MASKED | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, _MASKED | 126, size)
    else:
        head = struct.pack("!BBQ", first, _MASKED | 127, size)
    return head + bytes(4) + payload


def frames(data: bytes, at: int = 0) -> Iterator[tuple[int, bytes, int]]:
    """The complete server frames in `data` from `at` on: opcode, payload, end."""
    while len(data) - at >= 2:
        size, start = data[at + 1], at + 2
        if size >= 126:
            wide = 2 if size == 126 else 8
            size, start = int.from_bytes(data[start : start + wide]), start + wide
        if start + size > len(data):
            return
        yield data[at] & 0x0F, data[start : start + size], start + size
        at = start + size
