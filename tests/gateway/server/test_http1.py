"""What a connection is told that is no handshake, and what garbage behind an answer does."""

from __future__ import annotations

import asyncio

import pytest

from headstart.gateway.server.http1 import Http
from tests.gateway.shapes import HOST, SHAPES
from tests.gateway.shell_fakes import RunningGateway, running_gateway, until


async def told(running: RunningGateway, *pieces: bytes) -> bytes:
    """All that the server says before it ends the connection."""
    host, port = running.url.partition("://")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(30):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)
        said = await reader.read()
    writer.close()
    return said


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("upgrade by POST", b"its method is not GET"),
        ("whole upgrade by POST", b"its method is not GET"),
        ("upgrade of HTTP/1.0", b"it is not of HTTP/1.1"),
        ("upgrade with a body", b"it has a body"),
        ("upgrade with chunks", b"it has a body"),
        ("upgrade with no bytes", b"unsupported request body"),
        ("upgrade without a key", b"Sec-WebSocket-Key"),
        ("upgrade without a version", b"Sec-WebSocket-Version"),
        ("upgrade with a key of bytes", b"sec-websocket-key has letters that are no ASCII"),
        ("upgrade with many headers", b"too many HTTP headers"),
        ("upgrade with a long header", b"line too long"),
    ],
)
async def test_what_is_no_handshake_is_told_so(name: str, why: bytes) -> None:
    """At once, with 400 and what was expected; uvicorn said nothing to some, and kept them."""
    async with running_gateway() as running:
        said = await told(running, SHAPES[name].first)
        assert said.startswith(b"HTTP/1.1 400")
        assert why in said
        await until(lambda: not running.server.server_state.connections)


async def test_garbage_behind_an_answer_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """In the body of a request that is answered already, that is being answered, or that will be:
    the connection ends, and the application does not answer twice."""
    chunked = HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    async with running_gateway() as running:
        for path in (b"/healthz", b"/nowhere", b"/v1/realtime/calls"):
            for method in (b"GET", b"POST"):
                head = method + b" " + path + b" HTTP/1.1\r\n" + chunked
                for pieces in ([head + b"nonsense\r\n"], [head, b"1\r\nx\r\nnonsense\r\n"]):
                    said = await told(running, *pieces)
                    assert said.count(b"HTTP/1.1 ") <= 1
    assert [r for r in caplog.records if r.levelname in ("ERROR", "CRITICAL")] == []


async def test_where_a_connection_is_is_known() -> None:
    """From its head to the exchange, and to the next head."""
    async with running_gateway() as running:
        host, port = running.url.partition("://")[2].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        connections = running.server.server_state.connections
        await until(lambda: connections)
        (http,) = connections
        assert isinstance(http, Http)
        assert (http.stage, http.waits_for_peer) == ("head", True)
        writer.write(b"POST /v1/realtime/calls HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n")
        await until(lambda: http.stage == "exchange")
        assert http.waits_for_peer
        writer.write(b"xx")
        await reader.readuntil(b"\r\n\r\n")
        await until(lambda: http.stage == "head")
        writer.close()
