"""The registry of sessions: runs every session of the gateway and finds it by its token.

Tokens are stored and looked up as hashes: the lookup time reveals nothing about a token, and none
can be read from memory. A token is valid as long as its session exists. Bound: the number of
sessions.

"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from headstart.gateway.connection.interfaces import Connection, Player, SessionCore
from headstart.gateway.connection.resume import ResumableChannel, SessionOver
from headstart.gateway.connection.runner import CLOSE_INTERNAL_ERROR, SessionRunner
from headstart.gateway.protocol import errors
from headstart.gateway.runtime import tasks
from headstart.gateway.session.actions import Hangup
from headstart.gateway.telemetry import names

log = logging.getLogger("headstart.resume")

TOKEN_BYTES = 24


class ResumeMetrics:
    """`outcome`: resumed, unknown (token), in_use, expired (not resumed in time)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.resumes = names.RESUMES.counter(registry)
        self.detached = names.SESSIONS_DETACHED.gauge(registry)


@dataclass(eq=False)
class SessionEntry:
    """One session and its parts."""

    session_id: str
    core: SessionCore
    resume_channel: ResumableChannel
    runner: SessionRunner
    token: str = field(repr=False)
    key_id: str = ""
    """Id of the API key it was opened with (`headstart.gateway.auth.access`)."""
    over: asyncio.Event = field(default_factory=asyncio.Event)


class SessionRegistry:
    """The running sessions. On the loop."""

    def __init__(self, metrics: ResumeMetrics | None = None) -> None:
        self.metrics = metrics or ResumeMetrics(CollectorRegistry())
        self.metrics.detached.set_function(lambda: sum(s.resume_channel.is_detached for s in self))
        self.on_resumed: Callable[[SessionEntry, Player | None], None] = lambda *_: None
        """Called when a session goes on over another connection, with its playout."""
        self._by_token: dict[bytes, SessionEntry] = {}

    def __iter__(self) -> Iterator[SessionEntry]:
        return iter(list(self._by_token.values()))

    def begin(self, entry: SessionEntry, held: contextlib.ExitStack) -> None:
        """Run the session in its own task, which outlives its connections; then close `held`."""
        self._by_token[_digest(entry.token)] = entry
        # Whatever its failure, `_run` cleans up and the other sessions continue.
        tasks.own(self._run(entry, held), "session", tasks.nothing_depends_on_it)

    @contextlib.asynccontextmanager
    async def claimed(self, token: str, key_id: str = "") -> AsyncIterator[SessionEntry]:
        """Reserve a token's session for a new connection within the context, where `resume` may be
        called. The key must be the one it was opened with. Raises `FatalProtocolError`."""
        entry = await self._claim(token, key_id)
        try:
            yield entry
        finally:
            entry.resume_channel.release()

    async def _claim(self, token: str, key_id: str) -> SessionEntry:
        entry = self._by_token.get(_digest(token))
        known = entry is not None and not entry.resume_channel.is_over and entry.key_id == key_id
        if entry is None or not known or not entry.core.resumable:
            self._count("unknown")
            raise errors.resume_unknown()
        if not await entry.resume_channel.claim():
            self._count("unknown" if entry.resume_channel.is_over else "in_use")
            raise (
                errors.resume_unknown() if entry.resume_channel.is_over else errors.resume_in_use()
            )
        return entry

    def resume(
        self,
        entry: SessionEntry,
        connection: Connection,
        last_event_id: str | None,
        player: Player | None = None,
    ) -> None:
        """Continue a claimed session over `connection`. Raises `FatalProtocolError` if it has ended
        since it was claimed."""
        try:
            replayed = entry.resume_channel.attach(connection, last_event_id)
        except SessionOver as over:
            self._count("unknown")
            raise errors.resume_unknown() from over
        entry.runner.resumed(player, replayed)
        self._count("resumed")
        self.on_resumed(entry, player)
        log.info("session %s goes on", entry.session_id)

    def hang_up(self, hangup: Hangup) -> None:
        """End every session; detached ones are ended without a close message."""
        for entry in self:
            entry.runner.hangup(hangup.code, hangup.reason)
            if entry.resume_channel.is_detached:
                entry.resume_channel.give_up()

    def expired(self) -> None:
        self._count("expired")

    def _count(self, outcome: str) -> None:
        self.metrics.resumes.labels(outcome).inc()

    async def _run(self, entry: SessionEntry, held: contextlib.ExitStack) -> None:
        with held:
            try:
                await entry.runner.run()
            except Exception:
                await entry.resume_channel.close(Hangup(CLOSE_INTERNAL_ERROR, "internal error"))
                raise
            finally:
                entry.resume_channel.give_up()
                del self._by_token[_digest(entry.token)]
                entry.over.set()


def new_token(gateway: str = "") -> str:
    """A token of 192 random bits. With the name of its gateway in front, a load balancer can find
    that again: `NAME.TOKEN`."""
    return (f"{gateway}." if gateway else "") + secrets.token_hex(TOKEN_BYTES)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
