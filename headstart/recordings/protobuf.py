"""As much of protobuf's wire format as a trace needs (https://protobuf.dev/programming-guides/encoding)."""

from __future__ import annotations

import struct

VARINT, FIXED64, BYTES = 0, 1, 2


def varint(value: int) -> bytes:
    """`value` is not negative."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def uint(field: int, value: int) -> bytes:
    return varint(field << 3 | VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | FIXED64) + struct.pack("<d", value)


def data(field: int, value: bytes | str) -> bytes:
    """A string, or a message that is encoded already."""
    raw = value.encode(errors="replace") if isinstance(value, str) else value
    return varint(field << 3 | BYTES) + varint(len(raw)) + raw
