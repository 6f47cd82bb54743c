"""Connections that say nothing, too little or too slowly, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
import uvloop
from starlette.responses import PlainTextResponse
from websockets.asyncio.client import connect

from headstart.gateway.connection.pending import (
    DroppedConnections,
    PendingConnections,
    PendingLimits,
)
from headstart.gateway.server.accept import Acceptor
from headstart.gateway.server.http1 import Http
from headstart.gateway.telemetry import names
from headstart.gateway.telemetry.collectors import CountsCollector
from headstart.gateway.transport.uvicorn_hooks import ServerState
from tests.gateway import shell_fakes
from tests.gateway.auth.test_middleware import certificate  # noqa: F401  # a fixture
from tests.gateway.shapes import drip
from tests.gateway.shell_fakes import RunningGateway, receive, until

UPGRADE = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    b"Sec-WebSocket-Version: 13\r\n\r\n"
)
HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"y" * 1000
POST = (
    b"POST /v1/realtime/client_secrets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
)
MANY = b"GET /filler HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4000
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


IMPATIENT = PendingLimits(head_s=0.5, exchange_s=1.0, closing_s=0.25, check_every_s=0.05)


@contextlib.asynccontextmanager
async def running_gateway(
    limits: PendingLimits = IMPATIENT, **flags: Any
) -> AsyncIterator[RunningGateway]:
    """One that waits for half a second where others wait for ten."""
    async with shell_fakes.running_gateway(limits, **flags) as running:
        yield running


@contextlib.asynccontextmanager
async def opened(running: RunningGateway) -> AsyncIterator[Streams]:
    """A plain TCP connection to it."""
    host, port = running.url.partition("://")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=4096)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def end_of(reader: asyncio.StreamReader) -> bytes:
    """What came until the server had had enough."""
    data = b""
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(4096):
                data += piece
    return data


async def is_well(running: RunningGateway) -> bool:
    """Others are served, and nothing of the connection is left."""
    await until(lambda: not running.server.server_state.connections)
    async with httpx.AsyncClient() as http:
        return (await http.get(f"{running.url}/status")).status_code == 200


async def test_silence_is_not_waited_for() -> None:
    """A connection on which nothing is said ends and is counted."""
    async with running_gateway() as running, opened(running) as (reader, _):
        assert await end_of(reader) == b""
        assert running.gateway.dropped_connections == {"head": 1}
        assert await is_well(running)


@pytest.mark.parametrize("data", [HEAD, UPGRADE * 20], ids=["request", "upgrade"])
async def test_a_head_by_single_bytes_is_not_waited_for(data: bytes) -> None:
    """Each byte is no new beginning."""
    async with running_gateway() as running, opened(running) as (reader, writer):
        dripping = asyncio.create_task(drip(writer, data.replace(b"\r\n\r\n", b"\r\nA: b\r\n")))
        assert await end_of(reader) == b""
        await dripping
        assert running.gateway.dropped_connections == {"head": 1}
        assert await is_well(running)


async def test_a_connection_that_was_answered_gets_no_longer() -> None:
    """uvicorn ends one that is idle, but not one whose next request comes by single bytes."""
    async with running_gateway() as running, opened(running) as (reader, writer):
        writer.write(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        dripping = asyncio.create_task(drip(writer, HEAD))
        await end_of(reader)
        await dripping
        assert running.gateway.dropped_connections == {"head": 1}
        assert await is_well(running)


async def test_a_body_by_single_bytes_is_not_waited_for() -> None:
    """It has the time of the whole exchange."""
    async with running_gateway() as running, opened(running) as (reader, writer):
        writer.write(POST)
        dripping = asyncio.create_task(drip(writer, b" " * 999))
        assert await end_of(reader) == b""
        await dripping
        assert running.gateway.dropped_connections == {"exchange": 1}
        assert await is_well(running)


async def test_an_answer_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    """Requests that come at once, and none of the answers is taken."""
    (tmp_path / "index.html").write_text("")
    (tmp_path / "filler").write_bytes(b"x" * 20_000)
    async with running_gateway(web_dir=tmp_path) as running, opened(running) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(MANY)
        await until(lambda: running.gateway.dropped_connections)
        assert await is_well(running)
        assert set(running.gateway.dropped_connections) <= {"exchange", "closing"}


async def test_a_goodbye_that_nobody_reads_is_not_waited_for() -> None:
    """A session's client stops reading, has megabytes sent, and says goodbye: its session and its
    descriptor are given back."""
    async with running_gateway() as running, opened(running) as (_, writer):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(UPGRADE)
        await until(lambda: running.gateway.runners)
        runner = next(iter(running.gateway.runners.values()))
        waiting_bytes = 0
        while not waiting_bytes or runner.waiting_bytes != waiting_bytes:
            if not runner.waiting_bytes:
                writer.write(masked(b"flood 400"))
            waiting_bytes = runner.waiting_bytes
            await asyncio.sleep(0.3)  # while the sockets' buffers take what they can
        writer.write(bytes((0x88, 0x80)) + bytes(4))  # close
        assert await is_well(running)
        assert running.gateway.dropped_connections == {"closing": 1}


def test_what_came_while_the_loop_stood_still_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine pauses for longer than a head may take, right when a connection has come, whose
    request lies in its socket: the check's timer is the first to run, and yet it is answered."""
    add = PendingConnections.add

    def add_and_pause(table: PendingConnections, pending: Any, now_s: float) -> None:
        add(table, pending, now_s)
        if pending.stage == "handshake":
            time.sleep(2.0)  # the whole loop

    monkeypatch.setattr(PendingConnections, "add", add_and_pause)

    async def run() -> None:
        async with running_gateway() as running:
            host, port = running.url.partition("://")[2].split(":")
            with socket.create_connection((host, int(port))) as peer:
                peer.send(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
                peer.setblocking(False)
                reply = await asyncio.get_running_loop().sock_recv(peer, 12)
            assert reply == b"HTTP/1.1 200"
            assert not running.gateway.dropped_connections

    uvloop.run(run())


async def test_a_session_may_be_silent() -> None:
    """What has become a WebSocket has the session's time."""
    async with running_gateway() as running, connect(running.ws_url) as socket:
        await asyncio.sleep(2.0)
        await socket.send("still there")
        assert (await receive(socket, "echo"))["text"] == "still there"
        assert not running.gateway.dropped_connections


async def test_a_handshake_has_its_time_too(certificate: tuple[Path, Path]) -> None:  # noqa: F811
    """Nothing at all, half of a client's hello, and no TLS; who does it right is served."""
    cert, key = certificate
    async with running_gateway(tls_cert=cert, tls_key=key) as running:
        async with opened(running) as (silent, _), opened(running) as (half, writer):
            writer.write(bytes.fromhex("16030100f6010000f20303") + bytes(40))
            assert await end_of(silent) == b""
            assert await end_of(half) == b""
            assert running.gateway.dropped_connections == {"handshake": 2}
        async with opened(running) as (plain, writer):
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await end_of(plain)
        context = ssl.create_default_context(cafile=str(cert))
        async with connect(running.ws_url, ssl=context) as socket:
            await receive(socket, "session.created")
        assert running.gateway.dropped_connections == {"handshake": 2}


async def test_a_crowd_keeps_nobody_out() -> None:
    """Where all places are taken by those who say nothing, the one that came first has to go, and
    who has something to say is heard at once."""
    limits = PendingLimits(pending_max=8)
    async with running_gateway(limits) as running, contextlib.AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(opened(running)) for _ in range(20)]
        assert await end_of(crowd[0][0]) == b""
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{running.url}/status")).json()["connections_cut"]
        async with connect(running.ws_url) as socket:
            await receive(socket, "session.created")
        assert running.gateway.dropped_connections["crowded"] >= 13
        assert len(running.server.server_state.connections) <= 9


async def test_what_comes_right_behind_an_upgrade_is_not_lost() -> None:
    """A first event in the same packet as the handshake's request, and another one in two."""
    async with running_gateway() as running, opened(running) as (reader, writer):
        split = masked(b"second")
        writer.write(UPGRADE + masked(b"first") + split[:4])
        await reader.readuntil(b'"first"')
        writer.write(split[4:])
        await reader.readuntil(b'"second"')


@pytest.mark.parametrize(
    ("number", "tries_max", "lines"),
    [
        (errno.EBADF, 12, 1),
        (errno.EINVAL, 12, 1),
        (errno.EIO, 12, 1),
        (errno.ECONNABORTED, 60, 0),
        (errno.ENETDOWN, 60, 0),
        (errno.EMFILE, 60, 0),
    ],
)
async def test_an_error_that_stays_is_met_now_and_then(
    number: int, tries_max: int, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Not for ever in a circle, in which nothing else has its turn; told once; and when it is
    over, connections are accepted as before."""
    loop = asyncio.get_running_loop()
    state, tries, accepted = ServerState(), 0, asyncio.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    theirs = socket.create_connection(listening.getsockname())
    ours, _ = listening.accept()

    async def accept(_: socket.socket) -> tuple[socket.socket, object]:
        nonlocal tries
        tries += 1
        if loop.time() < began_s + 0.5:
            raise OSError(number, "as told")
        if accepted.is_set():
            await asyncio.sleep(60)
        accepted.set()
        return ours, None

    config = uvicorn.Config(PlainTextResponse("hello"), lifespan="off", log_config=None)
    config.load()
    began_s = loop.time()
    acceptor = Acceptor(config, state, DroppedConnections(), accept=accept)
    acceptor.open(listening)
    try:
        await asyncio.sleep(0.4)
        assert 2 <= tries <= tries_max
        await until(lambda: state.connections)
        assert len([r for r in caplog.records if "can be accepted" in r.getMessage()]) == lines
    finally:
        await acceptor.close()
        await acceptor.close_connections(0.0, lambda: False)
        listening.close()
        theirs.close()


def test_a_connection_whose_making_is_cancelled_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Even where it has begun: uvloop closes it without telling anybody, and the answer to its
    request would fail."""
    made = []

    async def run() -> None:
        async def application(scope: Any, receive: Any, send: Any) -> None:
            await until(lambda: not acceptor._handshakes)
            await PlainTextResponse("here")(scope, receive, send)

        config = uvicorn.Config(application, interface="asgi3", ws="none", log_config=None)
        config.load()
        state = ServerState()
        acceptor = Acceptor(config, state, DroppedConnections())

        def opened(connection: Http) -> None:
            made.append(connection)
            connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            for task in acceptor._handshakes:
                task.cancel()

        monkeypatch.setattr(Http, "opened", opened)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            acceptor.open(listening)
            with socket.create_connection(listening.getsockname()) as client:
                client.setblocking(False)
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
            await until(lambda: not state.tasks)
            await acceptor.close()
        assert not state.connections

    uvloop.run(run())
    assert len(made) == 1
    assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == []


def test_cuts_are_told_by_reason() -> None:
    """As a Prometheus counter."""
    cuts = DroppedConnections(head=2, crowded=1)
    (family,) = CountsCollector(names.CONNECTIONS_CUT, lambda: cuts).collect()
    told = {sample.labels["reason"]: sample.value for sample in family.samples}
    assert told == {"head": 2, "crowded": 1}


def masked(text: bytes) -> bytes:
    """A WebSocket frame of it, as a client sends one."""
    return bytes((0x81, 0x80 | len(text))) + bytes(4) + text
