"""A server whose every answer a test writes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from websockets.asyncio.server import ServerConnection

Handle = Callable[[ServerConnection, dict[str, Any]], Awaitable[None]]
SESSION = {"type": "realtime", "model": "m"}


async def scripted(connection: ServerConnection, handle: Handle) -> None:
    await connection.send(json.dumps({"type": "session.created", "session": SESSION}))
    async for message in connection:
        await handle(connection, json.loads(message))


async def tell(connection: ServerConnection, kind: str, **fields: Any) -> None:
    """Send an event of that kind."""
    await connection.send(json.dumps({"type": kind, "event_id": "e", **fields}))
