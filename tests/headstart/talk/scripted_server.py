"""A server whose every answer a test writes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

Handle = Callable[[ServerConnection, dict[str, Any]], Awaitable[None]]
SESSION = {"type": "realtime", "model": "m"}


@contextlib.asynccontextmanager
async def serving(
    handle: Handle,
    *,
    session: Mapping[str, Any] = SESSION,
    connections: set[ServerConnection] | None = None,
) -> AsyncIterator[str]:
    """The URL of a server that says `session.created` of `session`, then what `handle` says to each
    event. `connections`: gets those that are open."""
    are_open: set[ServerConnection] = set() if connections is None else connections

    async def converse(connection: ServerConnection) -> None:
        are_open.add(connection)
        try:
            await tell(connection, "session.created", session=session)
            async for message in connection:
                await handle(connection, json.loads(message))
        finally:
            are_open.remove(connection)

    async with serve(converse, "127.0.0.1", 0, max_size=None) as server:
        yield f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"


async def tell(connection: ServerConnection, kind: str, **fields: Any) -> None:
    """Send an event of that kind."""
    await connection.send(json.dumps({"type": kind, "event_id": "e", **fields}))


async def answer(
    connection: ServerConnection,
    event: dict[str, Any],
    text: str = "Yes.",
    *events: dict[str, Any],
    **fields: Any,
) -> None:
    """Answer a `response.create` in one delta, with `events` behind it. `fields`: of the response,
    which is completed."""
    metadata = event["response"]["metadata"]
    response = {"id": "r", "status": "completed", "metadata": metadata, **fields}
    await tell(connection, "response.created", response=response)
    await tell(connection, "response.output_text.delta", response_id=response["id"], delta=text)
    for each in events:
        await tell(connection, response_id=response["id"], **each)
    await tell(connection, "response.done", response=response)
