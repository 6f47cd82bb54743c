"""A client's half of one session: its events counted, and requests repeated if a connection took
them along.

    server ─▶ ResumableConnection ─▶ ClientSession: settings, errors, counts ─▶ `receive` ─▶ waiters
    request ─▶ send ─▶ reply? ── connection lost before it came ─▶ send again

A session that the server ended is over: what ended it is raised to everybody who waits or sends.

"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

from headstart.gateway.errors import ServerFailed, ServerRefused
from headstart.gateway.runtime import tasks
from headstart.talk.connection.resumption import ResumableConnection

Event = dict[str, Any]


def _ignore(_: Event) -> None:
    pass


def another_model(wanted: str | None, served: object) -> str | None:
    """A sentence if a server's session has another model than `wanted`, a name (of a directory the
    server makes up a name). Servers of ours answer to any name, because clients send those of
    OpenAI's models. `served`: a session's `model`, perhaps with a version behind the name."""
    if wanted is None or os.sep in wanted or not isinstance(served, str):
        return None
    if served == wanted or served.startswith(f"{wanted}-"):
        return None
    return f"the server runs {served!r}, not {wanted!r}: the model is chosen where it is started"


class ClientSession:
    """`receive` gets every event before anybody who waits is woken; what it raises for an event
    that it cannot read counts as the server's fault. `observe` is called behind it, and what that
    raises ends the session as it is. `quiet_wait_s`: a server that owes something and sends nothing
    for so long has failed."""

    def __init__(
        self,
        connection: ResumableConnection,
        receive: Callable[[Event], None],
        quiet_wait_s: float,
        observe: Callable[[Event], None] = _ignore,
    ) -> None:
        self.settings: Event = {}
        """The session object, as the server last sent it."""
        self.errors: list[Event] = []
        self.updates = 0
        """How many `session.updated`s have come."""
        self.resumptions = 0
        """How often it went on over another connection."""
        self._connection = connection
        self._receive, self._observe = receive, observe
        self._quiet_wait_s = quiet_wait_s
        self._changed = asyncio.Condition()
        self._ended: Exception | None = None
        self._last_kind = ""

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Process events meanwhile."""
        task = tasks.awaited(self._listen(), "listen")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _listen(self) -> None:
        """If this ends, the session ends at once: otherwise an unprocessed reply would look like a
        missing one."""
        try:
            async for message in self._connection:
                self._observe(self._take(message))
                async with self._changed:
                    self._changed.notify_all()
        except Exception as error:
            self._ended = error
            self._connection.end(error)
        async with self._changed:
            self._changed.notify_all()

    def _take(self, message: str | bytes) -> Event:
        try:
            event: Event = json.loads(message)
            match event["type"]:
                case "session.created":
                    self.settings = event["session"]
                case "session.updated":
                    self.settings = event["session"]
                    self.updates += 1
                case "gateway.session.resumed":
                    self.settings = event["session"]
                    self.resumptions += 1
                case "error":
                    self.errors.append(event["error"])
            self._receive(event)
            self._last_kind = event["type"]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ServerFailed(f"the server broke the protocol: {error!r}") from error
        return event

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for `condition` while events come. Raises what ended the session, if it did, and
        `ServerFailed` if none comes for `quiet_wait_s`."""
        async with self._changed:
            while not condition():
                if self._ended is not None:
                    raise self._ended
                try:
                    # Not `wait_for`: Python 3.11's ignores a cancellation that an event comes with.
                    async with asyncio.timeout(self._quiet_wait_s):
                        await self._changed.wait()
                except TimeoutError as error:
                    raise ServerFailed(
                        f"the server sent nothing for {self._quiet_wait_s:.0f} s; still owed: "
                        f"{what}; the last that came: {self._last_kind or 'nothing'}"
                    ) from error

    async def send(self, kind: str, **fields: Any) -> int:
        """Send an event; returns what `ResumableConnection.send` returns."""
        return await self._connection.send(json.dumps({"type": kind, **fields}))

    async def request(self, what: str, came: Callable[[], int], kind: str, **fields: Any) -> None:
        """Send an event until its reply, `what`, has come: until `came` counts more.

        A request sent just before a connection is lost may be lost with it. A server replies to
        each of these at once, and a resumed client gets all missed events before `resumed`. So if
        the reply is not there by then, the server never got the request.

        """
        before = came()
        while came() == before:
            sent_over = await self.send(kind, **fields)
            await self.until(self._more_or_lost(came, before, sent_over), what)

    def _more_or_lost(
        self, came: Callable[[], int], before: int, sent_over: int
    ) -> Callable[[], bool]:
        return lambda: came() > before or self.resumptions > sent_over

    async def configure(self, settings: Event, gateway: Event | None = None) -> bool:
        """Set the session up, with our extensions `gateway` if there are any and the server takes
        them; returns whether it did. Raises `ServerRefused`."""
        await self.until(lambda: bool(self.settings), "session.created")
        for extensions in ([gateway] if gateway is not None else []) + [None]:
            # A server that does not know our key refuses the whole update.
            self.errors.clear()
            wanted = settings if extensions is None else {**settings, "gateway": extensions}
            await self.request("session.updated", self._replies, "session.update", session=wanted)
            if not self.errors:
                return extensions is not None
        raise ServerRefused(
            f"the server refuses the session's settings: {self.errors[0]['message']}"
        )

    async def barrier(self, kind: str) -> None:
        """Wait until the server has processed all that was sent, whatever its speed. `kind`: the
        session's."""
        await self.request(
            "session.updated", lambda: self.updates, "session.update", session={"type": kind}
        )

    def _replies(self) -> int:
        return self.updates + len(self.errors)
