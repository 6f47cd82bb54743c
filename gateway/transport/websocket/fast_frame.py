"""The short way for the frame that is nearly all of them: a small text, whole, in one read.

Taking it apart here costs a sixth of what a parser that is ready for everything needs. Whatever
this does not take, for whatever reason, is None: then the parser sees to it and to its errors.
"""

from __future__ import annotations

from websockets import Opcode

from headstart.gateway.transport.websockets_hooks import unmask

FIN_TEXT = 0x80 | Opcode.TEXT
MASKED = 0x80
SIZE_FOLLOWS = 126  # in two bytes
LONG_SIZE_FOLLOWS = 127  # in eight bytes, for more than two hold


def fast_text(data: bytes) -> str | None:
    """The message, if `data` is exactly one text frame as a client sends it (RFC 6455 §5.2): not
    fragmented, not compressed, masked, under 64 KiB, and UTF-8."""
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
