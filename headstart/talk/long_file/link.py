"""One session with a server: its events noted, requests repeated if a connection took them along.

`joined` opens it. What it raises: `ServerRefused` for settings that the server does not take, and
`ServerFailed` when the session is over; then the caller may open another one, since nothing about
the recording is kept in a session.

"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from headstart.gateway.errors import ServerFailed, ServerRefused
from headstart.gateway.runtime import tasks
from headstart.talk.client import realtime_url
from headstart.talk.comeback import ResumingConnection, lasting
from headstart.talk.socket import open_socket

Event = dict[str, Any]
QUIET_WAIT_S = 600.0
"""A server that owes something and sends nothing for this long has failed. A long prompt takes a
large model minutes, and sends nothing meanwhile."""


class Link:
    """Made by `joined`. `receive` gets every event, before anybody who waits is woken."""

    def __init__(self, line: ResumingConnection, receive: Callable[[Event], None]) -> None:
        self.session: Event = {}
        self.errors: list[Event] = []
        self._line = line
        self._receive = receive
        self._changed = asyncio.Condition()
        self._ended: Exception | None = None
        self._barriers = 0
        self._comebacks = 0

    async def listen(self) -> None:
        """Process events until the session ends."""
        try:
            async for message in self._line:
                self._take_in(message)
                async with self._changed:
                    self._changed.notify_all()
        except Exception as error:
            self._ended = error
            self._line.end(error)
        async with self._changed:
            self._changed.notify_all()

    def _take_in(self, message: str | bytes) -> None:
        try:
            event: Event = json.loads(message)
            match event["type"]:
                case "session.created":
                    self.session = event["session"]
                case "session.updated":
                    self.session = event["session"]
                    self._barriers += 1
                case "gateway.session.resumed":
                    self.session = event["session"]
                    self._comebacks += 1
                case "error":
                    self.errors.append(event["error"])
            self._receive(event)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ServerFailed(f"the server broke the protocol: {error!r}") from error

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for `condition` while events arrive. Raises what ended the session, if it did."""
        async with self._changed:
            while not condition():
                if self._ended is not None:
                    raise self._ended
                try:
                    await asyncio.wait_for(self._changed.wait(), QUIET_WAIT_S)
                except TimeoutError as error:
                    raise ServerFailed(
                        f"the server sent nothing for {QUIET_WAIT_S:.0f} s; still owed: {what}"
                    ) from error

    async def send(self, kind: str, **fields: Any) -> int:
        """Send an event; returns how many connections had been lost before the one it went over."""
        return await self._line.send(json.dumps({"type": kind, **fields}))

    async def ask(self, what: str, came: Callable[[], int], kind: str, **fields: Any) -> None:
        """Send an event until `came` counts more, as `talk.client` does: a connection that breaks
        may take it along, and a resumed session has replayed every reply to what it got."""
        before = came()

        def is_settled() -> bool:
            return came() > before or self._comebacks > sent_over

        while came() == before:
            sent_over = await self.send(kind, **fields)
            await self.until(is_settled, what)

    async def configure(self, session: Event, gateway: Event) -> None:
        """Set the session up, with our extensions if the server knows them. Raises
        `ServerRefused`."""
        await self.until(lambda: bool(self.session), "session.created")
        for wanted in ({**session, "gateway": gateway}, session):
            self.errors.clear()
            await self.ask("session.updated", self._replies, "session.update", session=wanted)
            if not self.errors:
                return
        raise ServerRefused(
            f"the server refuses the session's settings: {self.errors[0]['message']}"
        )

    async def barrier(self, kind: str) -> None:
        """Wait until the server has processed all that was sent, or until it says that something is
        wrong with that (`errors`)."""
        await self.ask("session.updated", self._replies, "session.update", session={"type": kind})

    def _replies(self) -> int:
        return self._barriers + len(self.errors)


@contextlib.asynccontextmanager
async def joined(
    url: str,
    api_key: str,
    receive: Callable[[Event], None],
    told: Callable[[float | None], None],
) -> AsyncIterator[Link]:
    """A session at a `session_url`; `told`: see `ResumingConnection`. Raises `TalkError`s."""
    async with lasting(functools.partial(open_socket, url, api_key), told) as line:
        link = Link(line, receive)
        task = tasks.awaited(link.listen(), "listen")
        try:
            yield link
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def session_url(url: str, model: str | None, intent: str | None = None) -> str:
    """The WebSocket URL for what the user typed. Raises `ServerUnreachable`."""
    whole = realtime_url(url, model)
    if intent is None:
        return whole
    parts = urlsplit(whole)
    query = [*parse_qsl(parts.query), ("intent", intent)]
    return urlunsplit((*parts[:3], urlencode(query), parts.fragment))
