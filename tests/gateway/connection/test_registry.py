"""A session that comes back, over real sockets and real calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import Any

import pytest
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from headstart.gateway.connection import resume as line_module
from headstart.gateway.protocol.headers import RESUME_HEADER as HEADER
from headstart.gateway.protocol.headers import RESUME_SUBPROTOCOL as SUBPROTOCOL
from tests.gateway.shell_fakes import RunningGateway, fake_engine, receive, running_gateway, until


def resuming(running: RunningGateway, token: str, last: str = "") -> Any:
    """A connection that asks for the session of a token, as a program does."""
    query = f"?last_event_id={last}" if last else ""
    return connect(running.ws_url + query, additional_headers={HEADER: token})


async def token_of(socket: ClientConnection) -> str:
    await socket.send("keep")
    return str((await receive(socket, "token"))["token"])


def cut(socket: ClientConnection) -> None:
    """As a network does: without a close frame."""
    socket.transport.abort()


async def error_of(socket: ClientConnection) -> tuple[str, int]:
    """The code of the error that is sent, and of the close behind it."""
    error = json.loads(await socket.recv())["error"]
    with contextlib.suppress(ConnectionClosed):
        await socket.recv()
    assert socket.close_code is not None
    return error["code"], socket.close_code


def outcomes(running: RunningGateway, outcome: str) -> float:
    value: float = running.gateway.registry.metrics.resumes.labels(outcome)._value.get()
    return value


async def test_a_cut_connection_comes_back() -> None:
    """By header or by subprotocol: the same session goes on, and what was lost comes first."""
    async with running_gateway(max_sessions=1) as running:
        socket = await connect(running.ws_url)
        token = await token_of(socket)
        await socket.send("count 5")
        for _ in range(3):
            last = (await receive(socket, "n"))["event_id"]
        assert last == "n2"
        cut(socket)
        await until(
            lambda: any(entry.resume_channel.is_detached for entry in running.gateway.registry)
        )
        async with resuming(running, token, "n2") as again:
            assert [json.loads(await again.recv())["event_id"] for _ in range(2)] == ["n3", "n4"]
            assert json.loads(await again.recv()) == {"type": "resumed", "replayed": 2}
            cut(again)
        offered = [Subprotocol("realtime"), Subprotocol(SUBPROTOCOL + token)]
        async with connect(running.ws_url, subprotocols=offered) as third:
            assert third.subprotocol == "realtime"
            await receive(third, "resumed")
            await third.send("still there?")
            assert (await receive(third, "echo"))["text"] == "still there?"
        assert len(running.sessions) == 1
        assert outcomes(running, "resumed") == 2
        await until(lambda: running.sessions[0].closed)  # it said goodbye


async def test_an_answer_goes_on_while_nobody_listens() -> None:
    """The engine is not told of the break; what it says is delivered, in order and once."""
    async with (
        running_gateway() as running,
        fake_engine(running.link.endpoint, "--answer", "a b c d e f", "--delta-ms", "50"),
    ):
        await until(lambda: running.link.is_ready)
        socket = await connect(running.ws_url)
        token = await token_of(socket)
        await socket.send("ask")
        words = [(await receive(socket, "delta"))["text"]]
        cut(socket)
        await until(lambda: not running.gateway.runners or not _answering(running))
        async with resuming(running, token, "never-seen") as again:
            while (event := json.loads(await again.recv()))["type"] != "response.done":
                if event["type"] == "delta":
                    words.append(event["text"])
        assert "".join(words).split()[-1] == "f"
        assert len(words) == len(set(words))
        assert running.link.counters.commands == 2, "Open and Respond"


def _answering(running: RunningGateway) -> bool:
    return any(runner.answering for runner in running.gateway.runners.values())


async def test_a_name_in_front_is_part_of_the_token() -> None:
    """Of a gateway with a name: a token without it, or with another one, is unknown."""
    async with running_gateway(gateway_name="gw-1") as running:
        socket = await connect(running.ws_url)
        token = await token_of(socket)
        name, dot, secret = token.partition(".")
        assert (name, dot, len(secret)) == ("gw-1", ".", 48)
        cut(socket)
        await until(lambda: any(e.resume_channel.is_detached for e in running.gateway.registry))
        for wrong in (secret, f"gw-2.{secret}", f".{secret}"):
            async with resuming(running, wrong) as thief:
                assert await error_of(thief) == ("resume_token_unknown", 4000)
        async with resuming(running, token) as again:
            await receive(again, "resumed")


async def test_the_same_token_from_a_second_place_is_refused() -> None:
    """While the first lives; it does not notice."""
    async with running_gateway() as running, connect(running.ws_url) as socket:
        token = await token_of(socket)
        async with resuming(running, token) as thief:
            assert await error_of(thief) == ("resume_in_use", 4000)
        await socket.send("mine")
        assert (await receive(socket, "echo"))["text"] == "mine"
        assert outcomes(running, "in_use") == 1


async def test_a_connection_that_is_dead_without_knowing_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its peer answers no ping: the newcomer gets the session, long before pings would time out."""
    monkeypatch.setattr(line_module, "ASK_WAIT_S", 0.2)
    async with running_gateway() as running:
        socket = await connect(running.ws_url)
        token = await token_of(socket)
        socket.transport.pause_reading()
        async with resuming(running, token) as again:
            await receive(again, "resumed")
            await again.send("here")
            assert (await receive(again, "echo"))["text"] == "here"
        cut(socket)


async def test_a_token_that_is_not_known_or_not_any_more() -> None:
    """Made up, of a session that was not kept, or of one that waited in vain."""
    async with running_gateway(resume_s=0.1) as running:
        async with resuming(running, "made up") as nobody:
            assert await error_of(nobody) == ("resume_token_unknown", 4000)
        async with connect(running.ws_url) as plain:
            await plain.send("hello")
            await receive(plain, "echo")
            async with resuming(running, running.sessions[0].token) as thief:
                assert await error_of(thief) == ("resume_token_unknown", 4000)
        socket = await connect(running.ws_url)
        token = await token_of(socket)
        cut(socket)
        await until(lambda: running.sessions[1].closed)
        async with resuming(running, token) as late:
            assert await error_of(late) == ("resume_token_unknown", 4000)
        assert outcomes(running, "expired") == 1
        assert not running.gateway.runners


async def test_kept_sessions_take_seats_and_a_drain_frees_them() -> None:
    """A full server refuses newcomers while one waits; SIGTERM does not wait for it."""
    async with running_gateway(max_sessions=1, resume_s=600) as running:
        socket = await connect(running.ws_url)
        await token_of(socket)
        cut(socket)
        await until(
            lambda: any(entry.resume_channel.is_detached for entry in running.gateway.registry)
        )
        assert running.gateway.refusal() is not None
        assert running.gateway.status_body()["sessions"]["detached"] == 1
        async with asyncio.timeout(60):
            await running.gateway.drain()
            await until(lambda: running.sessions[0].closed)


async def test_what_waits_for_a_client_is_bounded() -> None:
    """An answer longer than the queue ends the session, as it does for a slow reader."""
    async with running_gateway(outbound_events=8) as running:
        socket = await connect(running.ws_url)
        await token_of(socket)
        await socket.send("hello")
        await receive(socket, "echo")
        cut(socket)
        await until(
            lambda: any(entry.resume_channel.is_detached for entry in running.gateway.registry)
        )
        (entry,) = running.gateway.registry
        for _ in range(20):
            entry.runner.engine_lost()
        await until(lambda: running.sessions[0].closed)
        assert running.gateway.sessions_shed == 1


async def test_no_token_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """At the most talkative level, neither when it is given nor when it comes back."""
    caplog.set_level(logging.DEBUG)
    async with running_gateway() as running:
        socket = await connect(running.ws_url)
        token = await token_of(socket)
        cut(socket)
        caplog.clear()  # the client's own log shows what it was sent
        async with resuming(running, token) as again:
            await receive(again, "resumed")
            assert token not in repr(next(iter(running.gateway.registry)))
    ours = [r for r in caplog.records if r.name.startswith(("headstart", "uvicorn"))]
    assert ours
    assert all(token not in r.getMessage() for r in ours if "<" not in r.getMessage())


async def test_a_token_is_worth_nothing_with_another_key() -> None:
    """It goes with the key that the session was opened with."""
    first, second = "a" * 20, "b" * 20
    async with running_gateway(api_keys=f"{first},{second}") as running:

        def using(key: str, token: str = "") -> Any:
            headers = {"Authorization": f"Bearer {key}"} | ({HEADER: token} if token else {})
            return connect(running.ws_url, additional_headers=headers)

        socket = await using(first)
        token = await token_of(socket)
        cut(socket)
        await until(
            lambda: any(entry.resume_channel.is_detached for entry in running.gateway.registry)
        )
        async with using(second, token) as thief:
            assert await error_of(thief) == ("resume_token_unknown", 4000)
        async with using(first, token) as again:
            await receive(again, "resumed")


async def test_a_session_that_ends_while_its_socket_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newcomer is told why, and not left with a socket that says nothing."""
    async with running_gateway() as running:
        socket = await connect(running.ws_url)
        token = await token_of(socket)
        cut(socket)
        await until(
            lambda: any(entry.resume_channel.is_detached for entry in running.gateway.registry)
        )
        (entry,) = running.gateway.registry
        accept = WebSocket.accept

        async def accept_late(self: WebSocket, *arguments: Any) -> None:
            await accept(self, *arguments)
            entry.runner.hangup(1000, "enough")
            await entry.over.wait()

        monkeypatch.setattr(WebSocket, "accept", accept_late)
        async with resuming(running, token) as late:
            assert await error_of(late) == ("resume_token_unknown", 4000)
        assert (outcomes(running, "resumed"), outcomes(running, "unknown")) == (0, 1)
