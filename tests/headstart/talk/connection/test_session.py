"""A client's half of a session: its waits."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from headstart.talk.connection.resumption import ResumeTicket, resumable
from headstart.talk.connection.session import ClientSession, Event


class Line:
    """A connection on which events come when told."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()

    async def send(self, text: str, /) -> None: ...

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            yield json.dumps(await self.events.get())

    @contextlib.asynccontextmanager
    async def open(self, _: ResumeTicket | None) -> AsyncIterator[Line]:
        yield self


async def test_a_wait_that_is_cancelled_as_an_event_comes() -> None:
    """It ends, whichever of the two is first: Ctrl-C would otherwise be lost."""
    for turns in range(6):  # of the loop, between the event and the cancellation
        line = Line()
        async with resumable(line.open, lambda _: None) as connection:
            session = ClientSession(connection, lambda _: None, quiet_wait_s=60)
            async with session.listening():
                waiting = asyncio.ensure_future(session.until(lambda: False, "what never comes"))
                await asyncio.sleep(0)
                line.events.put_nowait({"type": "response.created"})
                for _ in range(turns):
                    await asyncio.sleep(0)
                waiting.cancel()
                done, _ = await asyncio.wait({waiting}, timeout=10)
                waiting.cancel()
                assert done, turns
                assert waiting.cancelled()
