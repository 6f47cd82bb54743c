"""Who sits where: every session of the gateway runs here, found again by its token.

A token is found by its hash, so that the time taken tells nothing of its letters and none can be
read out of memory; it is good for as long as its session. Bound: as many as there are sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge

from gateway import tasks
from gateway.actions import Hangup
from gateway.ports import Link, Player, SessionCore
from gateway.protocol import errors
from gateway.pump import CLOSE_INTERNAL_ERROR, Pump
from gateway.resume.line import Line, LineOver

log = logging.getLogger("headstart.resume")

TOKEN_BYTES = 24


class ResumeMetrics:
    """`outcome`: resumed, unknown (token), in_use, expired (kept in vain)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.resumes = Counter(
            "headstart_resumes",
            "Sessions whose connection broke, by what came of it",
            ["outcome"],
            registry=registry,
        )
        self.detached = Gauge(
            "headstart_sessions_detached", "Sessions that wait for their client", registry=registry
        )


@dataclass(eq=False)
class Seat:
    """One session and what it consists of."""

    session_id: str
    core: SessionCore
    line: Line
    pump: Pump
    token: str = field(repr=False)
    holder: str = ""
    """Whose key it came with (`gateway.access`)."""
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Seats:
    """The sessions that have begun. On the loop."""

    def __init__(self, metrics: ResumeMetrics | None = None) -> None:
        self.metrics = metrics or ResumeMetrics(CollectorRegistry())
        self.metrics.detached.set_function(lambda: sum(s.line.is_detached for s in self))
        self._by_token: dict[bytes, Seat] = {}

    def __iter__(self) -> Iterator[Seat]:
        return iter(list(self._by_token.values()))

    def begin(self, seat: Seat, held: contextlib.ExitStack) -> None:
        """Run the session in a task of its own, which outlives its links; then close `held`."""
        self._by_token[_digest(seat.token)] = seat
        # Whatever it fails of: the other sessions go on, and `_run` leaves nothing of it.
        tasks.own(self._run(seat, held), "session", tasks.nothing_depends_on_it)

    @contextlib.asynccontextmanager
    async def claimed(self, token: str, holder: str = "") -> AsyncIterator[Seat]:
        """The session of a token, reserved for a new link while the context lasts, in which it may
        be `resume`d. It takes the key that it was opened with, too. Raises `FatalProtocolError`."""
        seat = await self._claim(token, holder)
        try:
            yield seat
        finally:
            seat.line.release()

    async def _claim(self, token: str, holder: str) -> Seat:
        seat = self._by_token.get(_digest(token))
        known = seat is not None and not seat.line.is_over and seat.holder == holder
        if seat is None or not known or not seat.core.resumable:
            self._count("unknown")
            raise errors.resume_unknown()
        if not await seat.line.claim():
            self._count("unknown" if seat.line.is_over else "in_use")
            raise errors.resume_unknown() if seat.line.is_over else errors.resume_in_use()
        return seat

    def resume(
        self, seat: Seat, link: Link, last_event_id: str | None, player: Player | None = None
    ) -> None:
        """Let a claimed session go on over `link`. Raises `FatalProtocolError` if it has ended
        since it was claimed."""
        try:
            replayed = seat.line.attach(link, last_event_id)
        except LineOver as over:
            self._count("unknown")
            raise errors.resume_unknown() from over
        seat.pump.resumed(player, replayed)
        self._count("resumed")
        log.info("session %s goes on", seat.session_id)

    def hang_up(self, hangup: Hangup) -> None:
        """End every session; one that waits for its client, without a word."""
        for seat in self:
            seat.pump.hangup(hangup.code, hangup.reason)
            if seat.line.is_detached:
                seat.line.give_up()

    def expired(self) -> None:
        self._count("expired")

    def _count(self, outcome: str) -> None:
        self.metrics.resumes.labels(outcome).inc()

    async def _run(self, seat: Seat, held: contextlib.ExitStack) -> None:
        with held:
            try:
                await seat.pump.run()
            except Exception:
                await seat.line.close(Hangup(CLOSE_INTERNAL_ERROR, "internal error"))
                raise
            finally:
                seat.line.give_up()
                del self._by_token[_digest(seat.token)]
                seat.over.set()


def new_token() -> str:
    return secrets.token_hex(TOKEN_BYTES)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
