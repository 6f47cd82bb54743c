"""Pending connections: those without a session. Limits their number and how long each may stay.

A connection is pending from its arrival until it has a session, whatever it is sent in between, and
again once either side has started to close the session's connection:

    handshake  TLS                                              `head_s`
    head       the request line and headers                     `head_s`
    exchange   the body, our response, until it is read         `exchange_s`
    upgrade    from a WebSocket request to its session          `exchange_s`
    closing    after a close by either side                     `closing_s`

A connection that exceeds its time is dropped and counted. Bound: `pending_max`. When one more
arrives, or no descriptor is left, the one that has waited longest for its peer is dropped, else the
oldest (`crowded`): a genuine client needs only milliseconds. Checking all connections once a second
is cheaper than one timer each. Time in which our own loop stood still does not count.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, cast

log = logging.getLogger("headstart.accept")

HEAD_S = 10.0
PENDING_MAX = 256

DroppedConnections = Counter[str]
"""Connections cut, by reason."""


@dataclass(frozen=True, slots=True)
class PendingLimits:
    """Limits of pending connections: their time per stage in s, and their number."""

    head_s: float = HEAD_S
    exchange_s: float = 60.0
    closing_s: float = 5.0
    check_every_s: float = 1.0
    pending_max: int = PENDING_MAX

    def allowed_s(self, stage: str) -> float:
        """How long a stage may take in total, in s."""
        return {"exchange": self.exchange_s, "upgrade": self.exchange_s}.get(
            stage, self.closing_s if stage == "closing" else self.head_s
        )


class PendingConnection(Protocol):
    """A connection without a session."""

    @property
    def stage(self) -> str:
        """Its stage, from the table in the module's docstring."""
        ...

    @property
    def waits_for_peer(self) -> bool:
        """Whether it waits for the peer rather than for us."""
        ...

    def cut(self) -> None:
        """Close it at once."""
        ...


class OpenConnection(Protocol):
    """Any open connection of the server, with or without a session."""

    @property
    def is_being_closed(self) -> bool:
        """Whether either side has started to close it."""
        ...

    def cut(self) -> None:
        """Close it at once."""
        ...


class ClosingConnection:
    """A connection that is being closed."""

    stage = "closing"
    waits_for_peer = True

    def __init__(self, connection: OpenConnection) -> None:
        self.connection = connection

    def cut(self) -> None:
        self.connection.cut()


class PendingConnections:
    """All pending connections of one server, with the start of their stages. On the loop."""

    def __init__(self, limits: PendingLimits, dropped: DroppedConnections) -> None:
        self.limits = limits
        self._dropped = dropped
        self._since: dict[PendingConnection, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def add(self, pending: PendingConnection, now_s: float) -> None:
        """Start the timer of its current stage."""
        self._since[pending] = now_s

    def drop(self, pending: PendingConnection) -> float | None:
        """Remove it; returns since when it was pending, None if it was not."""
        return self._since.pop(pending, None)

    def excuse(self, stood_still_s: float, now_s: float) -> None:
        """Give all that long more: the loop stood still, and what they sent meanwhile lies unread
        in their sockets. (uvloop runs timers before it reads.)"""
        self._since = {
            pending: min(since_s + stood_still_s, now_s) for pending, since_s in self._since.items()
        }

    def drop_expired(self, now_s: float, connections: Iterable[OpenConnection]) -> None:
        """Drop those that exceeded their time. `connections`: all open ones of the server."""
        open_ones = set(connections)
        leaving = {
            pending.connection for pending in self._since if isinstance(pending, ClosingConnection)
        }
        for connection in leaving - open_ones:
            self._since = {g: s for g, s in self._since.items() if not _is_of(g, connection)}
        for connection in open_ones - leaving:
            if connection.is_being_closed:
                self.drop(cast(PendingConnection, connection))  # if it is pending
                self.add(ClosingConnection(connection), now_s)
        for pending, since_s in list(self._since.items()):
            if now_s - since_s > self.limits.allowed_s(pending.stage):
                self._cut(pending, pending.stage)

    def make_room(self) -> bool:
        """Drop the one that has waited longest for its peer, or else the oldest. False: there is
        none."""
        if not self._since:
            return False
        waiting = [pending for pending in self._since if pending.waits_for_peer]
        self._cut(min(waiting or self._since, key=self._since.__getitem__), "crowded")
        return True

    def count_rejected(self) -> None:
        """Count a new connection that was rejected for lack of room."""
        self._count("crowded")

    def _cut(self, pending: PendingConnection, reason: str) -> None:
        self._count(reason)
        self.drop(pending)
        pending.cut()

    def _count(self, reason: str) -> None:
        self._dropped[reason] += 1
        log.debug("cut a connection: %s", reason)


def _is_of(pending: PendingConnection, connection: OpenConnection) -> bool:
    return isinstance(pending, ClosingConnection) and pending.connection is connection
