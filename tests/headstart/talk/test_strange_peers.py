"""Peers that are no server of ours: a client has a sentence for each, whatever it sends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from headstart.gateway.errors import ServerRefused, ServerUnreachable, TalkError
from headstart.talk.connection.address import realtime_url
from headstart.talk.connection.webrtc import call
from headstart.talk.connection.websocket import open_socket
from headstart.talk.local_server import until_ready
from headstart.top.source import LiveFeed


def http(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    """A whole reply."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


NO_HTTP = {
    "another protocol": b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02F",
    "a status that is none": b"HTTP/1.1 999999 Found\r\n\r\n",
    "a line too long": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "too many headers": b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 500 + b"\r\n",
    "a chunk of no size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
}
LOADING = {"what": "weights", "done": "no number", "total": 3}
NO_STATUS = {
    "no text": http(b"\xff\xfe"),
    "too deep": http(b"[" * 200_000),
    "cut short": http(b"{}")[:-1],
    "another server's": http(b'{"engine": 1}'),
    "no state": http(b'{"engine": {}}'),
    "no voice": http(b'{"engine": {"state": "ready", "loading": null}, "voice": 3}'),
    "no progress": http(json.dumps({"engine": {"state": "x", "loading": LOADING}}).encode()),
    "a refusal cut short": http(b"{}", "401 Unauthorized")[:-1],
    "a circle": http(b"", "302 Found", "Location: /status\r\n"),
}
AWAY = {
    "nothing": b"",
    "to no host": http(b"", "302 Found", "Location: http://[::1\r\n"),
    "to no name": http(b"", "302 Found", "Location: http://a b/\r\n"),
}


@contextlib.asynccontextmanager
async def peer(reply: bytes) -> AsyncIterator[str]:
    """Sends `reply` to whoever sends something, and hangs up; its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(1)
            writer.write(reply)
            await writer.drain()
            writer.write_eof()
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def socket(url: str) -> None:
    async with open_socket(realtime_url(url, None), "key"):
        pass


async def rtc(url: str) -> None:
    async with call(realtime_url(url, None), "key"):
        pass


async def top(url: str) -> None:
    async for _ in LiveFeed(url, "key", once=True).messages(lambda _: None):
        pass


CLIENTS: dict[str, Callable[[str], Awaitable[None]]] = {"socket": socket, "rtc": rtc, "top": top}


@pytest.mark.parametrize("reply", NO_HTTP.values(), ids=NO_HTTP)
async def test_a_peer_that_speaks_no_http(reply: bytes) -> None:
    """It answers, so the address is at fault, and the sentence says so."""
    async with peer(reply) as url:
        with pytest.raises(ServerRefused, match=f"^{url}/status answers, but not in HTTP"):
            await until_ready(url, lambda _: None)


@pytest.mark.parametrize("reply", NO_STATUS.values(), ids=NO_STATUS)
async def test_a_peer_without_a_status(reply: bytes) -> None:
    """HTTP, and no status of ours: perhaps another server of the protocol, which has none."""
    async with peer(reply) as url:
        assert await until_ready(url, lambda _: None) is None


@pytest.mark.parametrize("reply", AWAY.values(), ids=AWAY)
async def test_a_peer_that_sends_us_nowhere(reply: bytes) -> None:
    """A redirection to no host ends in an error of ours, not in a traceback."""
    async with peer(reply) as url:
        with pytest.raises(ServerUnreachable):
            await until_ready(url, lambda _: None)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
async def test_each_client_has_a_sentence_for_each_peer(
    client: Callable[[str], Awaitable[None]],
) -> None:
    """It names the address, whatever the peer says."""
    for reply in (NO_HTTP | NO_STATUS | AWAY).values():
        async with peer(reply) as url:
            with pytest.raises(TalkError) as caught:
                await client(url)
            assert url.removeprefix("http://") in str(caught.value)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize("host", ["a b", "a" * 70 + ".example"], ids=["a space", "a long name"])
async def test_hosts_that_have_no_such_name(
    client: Callable[[str], Awaitable[None]], host: str
) -> None:
    """They are refused before a name server is asked."""
    with pytest.raises(ServerUnreachable, match="is no server's address"):
        await until_ready(f"http://{host}", lambda _: None)
    with pytest.raises(TalkError):
        await client(f"http://{host}")
