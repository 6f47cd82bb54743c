"""WebSocket client frames by hand: masked with zeros, which costs neither side anything."""

from __future__ import annotations

import struct

HANDSHAKE = (
    b"GET /v1/realtime?model=fake HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\n\r\n"
)
_FIN_TEXT = 0x81
_MASKED = 0x80


def text_frame(text: str) -> bytes:
    """One client text frame, RFC 6455 §5.2."""
    payload = text.encode()
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", _FIN_TEXT, _MASKED | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", _FIN_TEXT, _MASKED | 126, size)
    else:
        head = struct.pack("!BBQ", _FIN_TEXT, _MASKED | 127, size)
    return head + bytes(4) + payload
