"""What a stranger may send and then hold its connection open: each way to be no session."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

HOST = b"Host: localhost\r\n"
KEY = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
VERSION = b"Sec-WebSocket-Version: 13\r\n"
WEBSOCKET = b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
HANDSHAKE = HOST + WEBSOCKET + KEY + VERSION
GET = b"GET /v1/realtime HTTP/1.1\r\n"
END = b"\r\n"


@dataclass(frozen=True, slots=True)
class Shape:
    """`first` is sent at once, `drip` by a byte every 20 ms behind it."""

    first: bytes
    drip: bytes = b""


def _upgrade(head: bytes, *lines: bytes, without: bytes = b"") -> bytes:
    return head + HANDSHAKE.replace(without, b"") + b"".join(lines) + END


SHAPES = {
    "silence": Shape(b""),
    "half a head": Shape(b"GET /healthz HTTP/1.1\r\nHost: local"),
    "head by bytes": Shape(b"GET /healthz HTTP/1.1\r\n", b"X-Slow: " + b"y" * 2000),
    "upgrade by POST": Shape(b"POST / HTTP/1.1\r\n" + HOST + WEBSOCKET + END),
    "whole upgrade by POST": Shape(_upgrade(b"POST /v1/realtime HTTP/1.1\r\n")),
    "upgrade of HTTP/1.0": Shape(_upgrade(b"GET /v1/realtime HTTP/1.0\r\n")),
    "upgrade with a body": Shape(_upgrade(GET, b"Content-Length: 10\r\n")),
    "upgrade with chunks": Shape(_upgrade(GET, b"Transfer-Encoding: chunked\r\n") + b"1\r\nx"),
    "upgrade with no bytes": Shape(_upgrade(GET, b"Content-Length: 0\r\n")),
    "upgrade without a key": Shape(_upgrade(GET, without=KEY)),
    "upgrade without a version": Shape(_upgrade(GET, without=VERSION)),
    "upgrade with a key of bytes": Shape(_upgrade(GET, KEY[:-4] + b"\xff\r\n", without=KEY)),
    "upgrade with many headers": Shape(_upgrade(GET, *(b"X-%d: y\r\n" % n for n in range(200)))),
    "upgrade with a long header": Shape(_upgrade(GET, b"X: " + b"y" * 9000 + END)),
    "half an upgrade": Shape(GET + HANDSHAKE),
    "upgrade elsewhere": Shape(_upgrade(b"GET /nowhere HTTP/1.1\r\n")),
    "upgrade to the page": Shape(_upgrade(b"GET / HTTP/1.1\r\n")),
    "upgrade and nonsense": Shape(_upgrade(b"GET / HTTP/1.1\r\n") + b"\xff" * 40),
    "upgrade to h2c": Shape(
        b"GET / HTTP/1.1\r\n" + HOST + b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
    ),
    "upgrade to anything": Shape(
        b"GET / HTTP/1.1\r\n" + HOST + b"Upgrade: tea\r\nConnection: Upgrade\r\n\r\n"
    ),
    "upgrade to h2c with a body": Shape(
        b"POST / HTTP/1.1\r\n" + HOST + b"Upgrade: h2c\r\nConnection: Upgrade\r\n"
        b"Content-Length: 10\r\n\r\n"
    ),
    "HTTP/2": Shape(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS": Shape(bytes.fromhex("16030100f6010000f20303") + bytes(40)),
    "CONNECT": Shape(b"CONNECT other:443 HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "pipelined": Shape((b"GET /filler HTTP/1.1\r\n" + HOST + END) * 500),
    "pipelined and half": Shape((b"GET /healthz HTTP/1.1\r\n" + HOST + END) * 3 + b"GET /"),
    "body that never comes": Shape(
        b"POST /v1/realtime/calls HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n"
    ),
    "body that nobody wants": Shape(
        b"POST /nowhere HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n", b"x" * 999
    ),
    "chunks that never end": Shape(
        b"POST /v1/realtime/calls HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n",
        b"1\r\nx\r\n" * 500,
    ),
    "chunks that are none": Shape(
        b"POST /healthz HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n"
    ),
    "continue": Shape(
        b"POST /v1/realtime/calls HTTP/1.1\r\n"
        + HOST
        + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n"
    ),
    "answered and idle": Shape(b"GET /healthz HTTP/1.1\r\n" + HOST + END),
    "answered and half": Shape(b"GET /healthz HTTP/1.1\r\n" + HOST + END + b"GET /heal"),
    "answered and closing": Shape(
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\nmore"
    ),
    "a wrong key": Shape(_upgrade(GET, b"Authorization: Bearer nobody's\r\n")),
}
"""For a server that wants keys: none of these may open a session there."""


async def drip(writer: asyncio.StreamWriter, data: bytes) -> None:
    """A byte every 20 ms, as long as that goes."""
    with contextlib.suppress(ConnectionError, RuntimeError):  # uvloop's word for it
        for at in range(len(data)):
            writer.write(data[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0.02)
