import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.server import ServerConnection, serve

from headstart.gateway.errors import ConnectionLost, ResumeRefused, ServerFailed, ServerUnreachable
from headstart.talk.connection.resumption import ResumeTicket
from headstart.talk.connection.websocket import open_socket

TICKET = ResumeTicket("secret", "event 7")


@asynccontextmanager
async def server(handle: Callable[[ServerConnection], Awaitable[None]]) -> AsyncIterator[str]:
    """A server of another making; its address."""
    async with serve(handle, "127.0.0.1", 0) as running:
        port = next(iter(running.sockets)).getsockname()[1]
        yield f"ws://127.0.0.1:{port}/v1/realtime?model=m"


async def test_a_ticket_goes_along() -> None:
    """The token in a header, never in the address, and the last event in the address, escaped;
    what the server says first is not swallowed."""
    seen: list[tuple[str, str | None]] = []

    async def handle(socket: ServerConnection) -> None:
        assert socket.request is not None
        seen.append((socket.request.path, socket.request.headers.get("headstart-resume")))
        await socket.send('{"type": "first"}')
        await socket.wait_closed()

    async with server(handle) as url, open_socket(url, "key", TICKET) as line:
        assert json.loads(await anext(aiter(line)))["type"] == "first"
    assert seen == [("/v1/realtime?model=m&last_event_id=event%207", "secret")]


async def test_a_refusal_to_go_on() -> None:
    """The protocol's own error, as what it is."""

    async def handle(socket: ServerConnection) -> None:
        error = {"code": "resume_in_use", "message": "still connected"}
        await socket.send(json.dumps({"type": "error", "error": error}))

    async with server(handle) as url:
        with pytest.raises(ResumeRefused, match="still connected") as refused:
            async with open_socket(url, "key", TICKET):
                pass
        assert refused.value.in_use


@pytest.mark.parametrize("said", ["no JSON", "[]", '{"type": "error"}'])
async def test_a_welcome_that_cannot_be_read(said: str) -> None:
    """It is the server's fault, and said so."""

    async def handle(socket: ServerConnection) -> None:
        await socket.send(said)

    async with server(handle) as url:
        with pytest.raises(ServerFailed, match="broke the protocol"):
            async with open_socket(url, "key", TICKET):
                pass


async def test_a_loss_is_no_goodbye() -> None:
    """A close frame is the server's wish; without one it was the network."""

    async def goodbye(socket: ServerConnection) -> None:
        await socket.close(1001, "going away")

    async def nothing(socket: ServerConnection) -> None:
        socket.transport.abort()

    for handle, error in ((goodbye, ServerFailed), (nothing, ConnectionLost)):
        async with server(handle) as url, open_socket(url, "key") as line:
            with pytest.raises(ServerFailed) as ended:
                await anext(aiter(line))
            assert type(ended.value) is error


async def test_nobody_there() -> None:
    """A sentence that says what to do."""
    with pytest.raises(ServerUnreachable, match="headstart serve"):
        async with open_socket("ws://127.0.0.1:9/v1/realtime", "key"):
            pass
