import asyncio
import json
from typing import Any

import psutil
import pytest
from websockets.asyncio.server import serve

from headstart.gateway.errors import ServerFailed, ServerUnreachable
from headstart.talk.local_server import Status, local_server, status_url, until_ready


async def test_own_server_starts_and_is_gone_afterwards() -> None:
    """It becomes ready, engine and all; no process is left."""
    seen: list[str] = []

    def note(status: Status) -> None:
        seen.append(status["engine"]["state"])

    arguments = ["--engine", "fake", "--set", "voice=none"]
    before = {child.pid for child in psutil.Process().children()}
    async with local_server(arguments) as server:
        status = await until_ready(server.url, note, server.check)
        assert status is not None
        assert status["model"]["name"] == "fake"
        (mine,) = {child.pid for child in psutil.Process().children()} - before
        family = psutil.Process(mine).children(recursive=True)
        engines = [child for child in family if "headstart.gateway.fake_engine" in child.cmdline()]
        assert len(engines) == 1
    assert seen[-1] == "ready"
    assert not psutil.pid_exists(mine)
    assert not any(child.is_running() for child in family)


async def test_own_server_that_cannot_start_is_quoted() -> None:
    """Its last words are in the error, whichever moment it dies in."""
    with pytest.raises(ServerFailed, match=r"port .*allowed"):
        async with local_server(["--set", "port=-1", "--port", "-1"]):
            pytest.fail("it cannot start")


async def test_a_foreign_server_is_not_asked_for_readiness() -> None:
    """404 at /status: some other server of the protocol; go on."""

    async def not_found(connection: Any, request: Any) -> Any:
        return connection.respond(404, "")

    async def nothing(connection: Any) -> None:
        return None

    async with serve(nothing, "127.0.0.1", 0, process_request=not_found) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        assert await until_ready(f"http://127.0.0.1:{port}", lambda status: None) is None


async def test_waits_for_the_engine() -> None:
    """Asks again until the state is ready, showing each answer."""
    states = iter(["waiting", "loading", "ready"])

    async def status(connection: Any, request: Any) -> Any:
        body = json.dumps({"engine": {"state": next(states), "loading": None}})
        return connection.respond(200, body)

    async def nothing(connection: Any) -> None:
        return None

    seen: list[str] = []
    async with serve(nothing, "127.0.0.1", 0, process_request=status) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        await until_ready(
            f"ws://127.0.0.1:{port}/v1/realtime",
            lambda status: seen.append(status["engine"]["state"]),
        )
    assert seen == ["waiting", "loading", "ready"]


async def test_nobody_there() -> None:
    """A closed port and a nonsense address say what to do."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    with pytest.raises(ServerUnreachable, match="headstart serve"):
        await until_ready(f"http://127.0.0.1:{port}", lambda status: None)


def test_status_address() -> None:
    """Beside the endpoint, whatever part of the address was given."""
    assert status_url("h:1") == "http://h:1/status"
    assert status_url("wss://h/v1/realtime?model=x") == "https://h/status"
    assert status_url("http://h/prefix/v1") == "http://h/prefix/status"
