import asyncio
import contextlib
import json
import socket as sockets
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidState

from headstart.gateway.connection.runner import LONG_CHARS
from headstart.gateway.transport.websocket.channel import RealtimeProtocol
from tests.gateway.shell_fakes import fake_engine, receive, running_gateway, until


async def closing(socket: Any) -> ConnectionClosed:
    """Read to the end; how it was closed."""
    async with asyncio.timeout(60):
        while True:
            try:
                await socket.recv()
            except ConnectionClosed as closed:
                return closed


async def test_text_goes_in_and_comes_out() -> None:
    """Each text frame reaches the session; a binary one arrives as its size."""
    async with running_gateway() as running, connect(running.ws_url) as socket:
        assert json.loads(await socket.recv())["type"] == "session.created"
        await socket.send("hello")
        assert await receive(socket, "echo") == {"type": "echo", "text": "hello"}
        await socket.send(b"\0" * 7)
        assert await receive(socket, "binary") == {"type": "binary", "size": 7}


async def test_sent_stamp_comes_after_the_event() -> None:
    """`wants_sent_stamp` calls the session back once the event is written."""
    async with running_gateway() as running, connect(running.ws_url) as socket:
        await socket.send("stamp")
        await receive(socket, "stamped")
        assert (await receive(socket, "was_sent"))["what"] == "stamped"


async def test_hangup_comes_behind_what_was_sent() -> None:
    """The last event is read before the close code of the session's choice."""
    async with running_gateway() as running, connect(running.ws_url) as socket:
        await socket.send("bye")
        await receive(socket, "echo")
        closed = await closing(socket)
        assert closed.rcvd is not None
        assert (closed.rcvd.code, closed.rcvd.reason) == (4000, "you said so")
        await until(lambda: running.sessions[0].closed)


async def test_session_ticks() -> None:
    """The session is told the time without anybody speaking, and no more after the end."""
    async with running_gateway() as running:
        async with connect(running.ws_url):
            await until(lambda: running.sessions and running.sessions[0].ticks >= 2)
        await until(lambda: not running.gateway.runners)
        assert running.sessions[0].closed


async def test_a_bug_ends_one_session_only() -> None:
    """An exception in one session's core closes it with 1011; its neighbour talks on."""
    async with (
        running_gateway() as running,
        connect(running.ws_url) as first,
        connect(running.ws_url) as second,
    ):
        await first.send("bug")
        closed = await closing(first)
        assert closed.rcvd is not None
        assert closed.rcvd.code == 1011
        await second.send("still there")
        assert (await receive(second, "echo"))["text"] == "still there"


async def test_flood_within_bounds_arrives() -> None:
    """A burst smaller than the bound reaches a reader however slow its start."""
    async with running_gateway() as running, connect(running.ws_url) as socket:
        await socket.send("flood 400")
        for _ in range(400):
            await receive(socket, "flood")


async def test_slow_reader_is_shed() -> None:
    """A burst over the bound and what the socket itself holds closes with 1013 and the reason, and
    frees the slot."""
    async with running_gateway() as running, connect(running.ws_url) as socket:
        await socket.send("flood 20000")
        closed = await closing(socket)
        assert closed.rcvd is not None
        assert closed.rcvd.code == 1013
        assert "slow reader" in closed.rcvd.reason
        await until(lambda: not running.gateway.runners)
        assert running.gateway.sessions_shed == 1


async def test_reader_that_reads_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that never reads cannot keep its slot by not letting the close frame through; what
    waits for it stays within its bound, and its neighbour is served."""
    monkeypatch.setattr("headstart.gateway.transport.websocket.channel.CLOSE_WAIT_S", 0.2)
    async with running_gateway(outbound_kib=512) as running, connect(running.ws_url) as other:
        raw = sockets.socket()
        raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        host, port = running.url.removeprefix("http://").split(":")
        with raw:
            raw.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(raw, (host, int(port)))
            await loop.sock_sendall(raw, _handshake(host))
            await until(lambda: len(running.gateway.runners) == 2)
            while len(running.gateway.runners) == 2:
                await loop.sock_sendall(raw, _masked_text("flood 100"))
                await other.send("still there")
                await receive(other, "echo")
                waiting = [runner.waiting_bytes for runner in running.gateway.runners.values()]
                assert max(waiting) <= 512 * 1024
            assert running.gateway.sessions_shed == 1
            await until(lambda: len(running.server.server_state.connections) == 1)


def _handshake(host: str) -> bytes:
    lines = [
        "GET /v1/realtime HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _masked_text(text: str) -> bytes:
    """A short client frame, RFC 6455 §5.2, masked with zeros."""
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text.encode()


async def test_big_message_reaches_the_session_and_a_huge_one_does_not() -> None:
    """20 MiB (a 15 MiB append in base64) is the session's to refuse; over the limit it is 1009."""
    async with running_gateway() as running:
        async with connect(running.ws_url, max_size=None) as socket:
            await socket.send(b"\0" * (20 * 1024 * 1024))
            assert (await receive(socket, "binary"))["size"] == 20 * 1024 * 1024
        async with connect(running.ws_url) as socket:
            with contextlib.suppress(ConnectionClosed):  # it may come before all is sent
                await socket.send(b"\0" * (33 * 1024 * 1024))
            closed = await closing(socket)
            assert closed.rcvd is not None
            assert closed.rcvd.code == 1009


async def test_engine_events_reach_the_session() -> None:
    """Answer, loss and return of the engine are told to the session they concern."""
    async with running_gateway() as running:
        async with fake_engine(running.link.endpoint, "--answer", "one two"):
            await until(lambda: running.link.is_ready)
            async with connect(running.ws_url) as socket:
                assert json.loads(await socket.recv())["ready"] is True
                await socket.send("ask")
                assert (await receive(socket, "delta"))["text"] == "one"
                assert (await receive(socket, "response.done"))["reason"] == "stop"
        await until(lambda: not running.link.is_ready)
        async with connect(running.ws_url) as socket:
            assert json.loads(await socket.recv())["ready"] is False
            async with fake_engine(running.link.endpoint):
                await receive(socket, "ready")


async def test_fast_audio_is_held_back_while_the_engine_is_behind() -> None:
    """With over 30 s of audio unheard the reader stops; a chunk's report lets it go on."""
    async with (
        running_gateway() as running,
        fake_engine(running.link.endpoint, "--chunk-ms", "400"),
    ):
        await until(lambda: running.link.is_ready)
        async with connect(running.ws_url) as socket:
            await socket.send("hear 31000")
            await socket.send("after")
            # Sent at once, but read only when the engine has reported the chunk.
            await receive(socket, "Chunk")
            assert (await receive(socket, "echo"))["text"] == "after"


async def test_tiny_messages_come_one_by_one_and_in_order() -> None:
    """Thousands in one write are more than a slice; each is answered, none overtakes."""
    async with (
        running_gateway(outbound_events=10_000) as running,
        connect(running.ws_url) as socket,
    ):
        count = 4000
        raw = socket.transport
        raw.write(b"".join(_masked_text(f"m{number}") for number in range(count)))
        for number in range(count):
            assert (await receive(socket, "echo"))["text"] == f"m{number}"


async def test_a_pong_that_we_have_not_read_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood is read at its share's pace, for longer than a pong may take: the pongs are in it."""
    monkeypatch.setattr("headstart.gateway.server.assemble.PING_INTERVAL_S", 0.1)
    monkeypatch.setattr("headstart.gateway.server.assemble.PING_TIMEOUT_S", 0.3)
    async with running_gateway() as running, connect(running.ws_url) as socket:
        for _ in range(60):
            await socket.send("work 10" + " " * 4000)
        for _ in range(60):
            await receive(socket, "worked")


async def test_a_closed_connection_has_no_pong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is known to the transport before the session has read what came before it: whoever
    asks then is told at once, and may resume."""
    made: list[RealtimeProtocol] = []
    connection_made = RealtimeProtocol.connection_made

    def note(self: RealtimeProtocol, transport: Any) -> None:
        connection_made(self, transport)
        made.append(self)

    monkeypatch.setattr(RealtimeProtocol, "connection_made", note)
    async with running_gateway() as running, connect(running.ws_url) as socket:
        assert json.loads(await socket.recv())["type"] == "session.created"
        (protocol,) = made
        protocol.wire.abort()
        with pytest.raises(InvalidState):
            await asyncio.wait_for(protocol.ping(), 60)


async def test_long_and_short_messages_keep_their_order() -> None:
    """A long one goes by way of another thread; a short one behind it waits."""
    async with running_gateway() as running, connect(running.ws_url) as socket:
        long = "x" * (LONG_CHARS + 1)
        for text in ("first", long, "last"):
            await socket.send(text)
        texts = [(await receive(socket, "echo"))["text"] for _ in range(3)]
        assert texts == ["first", long, "last"]


async def test_more_of_an_event_comes_before_the_next() -> None:
    """`ContinueLater` is asked for until there is none, and only then the next message is read."""
    async with running_gateway() as running, connect(running.ws_url) as socket:
        await socket.send("pieces 3")
        await socket.send("after")
        kinds = []
        while "echo" not in kinds:
            kinds.append(json.loads(await socket.recv())["type"])
        assert [kind for kind in kinds if kind != "session.created"] == ["piece"] * 3 + ["echo"]


async def test_one_that_floods_leaves_the_others_their_turns() -> None:
    """While a second of work waits in one session, another asks and is answered ten times."""
    async with (
        running_gateway() as running,
        connect(running.ws_url) as greedy,
        connect(running.ws_url) as modest,
    ):
        for _ in range(100):
            await greedy.send("work 10")
        await receive(greedy, "worked")
        for number in range(10):
            await modest.send(f"m{number}")
            assert (await receive(modest, "echo"))["text"] == f"m{number}"
        done = 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                while True:
                    await receive(greedy, "worked")
                    done += 1
        assert done < 100
        for _ in range(100 - done):  # and nothing of the flood is lost
            await receive(greedy, "worked")
