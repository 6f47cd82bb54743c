"""A fast path for the most frequent frame: a small, complete text in one read.

It takes a sixth of the general parser's time. Anything it does not accept returns None, and the
general parser handles it, including all errors.

"""

from __future__ import annotations

from websockets import Opcode

from headstart.gateway.transport.websockets_hooks import unmask

FIN_TEXT = 0x80 | Opcode.TEXT
MASKED = 0x80
SIZE_FOLLOWS = 126  # the size follows in two bytes
LONG_SIZE_FOLLOWS = 127  # the size follows in eight bytes


def fast_text(data: bytes) -> str | None:
    """The message, if `data` is exactly one text frame from a client (RFC 6455 §5.2): not
    fragmented, not compressed, masked, under 64 KiB, and UTF-8. None otherwise."""
    if len(data) < 8 or data[0] != FIN_TEXT:
        return None
    at, size = 2, data[1] - MASKED
    if size == SIZE_FOLLOWS:
        at, size = 4, data[2] << 8 | data[3]
        if size < SIZE_FOLLOWS:
            return None
    elif size == LONG_SIZE_FOLLOWS:
        return None
    if len(data) != at + 4 + size:
        return None
    try:
        return unmask(data[at + 4 :], data[at : at + 4]).decode()
    except UnicodeDecodeError:
        return None
