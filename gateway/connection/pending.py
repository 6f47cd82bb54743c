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
is cheaper than one timer each.

"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, cast

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

log = logging.getLogger("headstart.accept")

HEAD_S = 10.0
PENDING_MAX = 256

DroppedConnections = Counter[str]
"""Connections cut, by reason."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long pending connections may take, how often they are checked, and how many there may be.
    """

    head_s: float = HEAD_S
    exchange_s: float = 60.0
    closing_s: float = 5.0
    look_every_s: float = 1.0
    guests_max: int = PENDING_MAX

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
    def is_leaving(self) -> bool:
        """Whether either side has started to close it."""
        ...

    def cut(self) -> None:
        """Close it at once."""
        ...


class Leaving:
    """A connection that is being closed."""

    stage = "closing"
    waits_for_peer = True

    def __init__(self, connection: OpenConnection) -> None:
        self.connection = connection

    def cut(self) -> None:
        self.connection.cut()


class Guests:
    """All pending connections of one server, each with the start of its current stage. On the loop.
    """

    def __init__(self, patience: Patience, cuts: DroppedConnections) -> None:
        self.patience = patience
        self._cuts = cuts
        self._since: dict[PendingConnection, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def add(self, guest: PendingConnection, now_s: float) -> None:
        """Start the timer of its current stage."""
        self._since[guest] = now_s

    def drop(self, guest: PendingConnection) -> float | None:
        """Remove it; returns since when it was pending, None if it was not."""
        return self._since.pop(guest, None)

    def look(self, now_s: float, connections: Iterable[OpenConnection]) -> None:
        """Drop those that exceeded their time. `connections`: all open ones of the server."""
        open_ones = set(connections)
        leaving = {guest.connection for guest in self._since if isinstance(guest, Leaving)}
        for connection in leaving - open_ones:
            self._since = {g: s for g, s in self._since.items() if not _is_of(g, connection)}
        for connection in open_ones - leaving:
            if connection.is_leaving:
                self.drop(cast(PendingConnection, connection))  # if it is pending
                self.add(Leaving(connection), now_s)
        for guest, since_s in list(self._since.items()):
            if now_s - since_s > self.patience.allowed_s(guest.stage):
                self._cut(guest, guest.stage)

    def make_room(self) -> bool:
        """Drop the one that has waited longest for its peer, or else the oldest. False: there is
        none."""
        if not self._since:
            return False
        waiting = [guest for guest in self._since if guest.waits_for_peer]
        self._cut(min(waiting or self._since, key=self._since.__getitem__), "crowded")
        return True

    def turned_away(self) -> None:
        """Count a new connection that was rejected for lack of room."""
        self._count("crowded")

    def _cut(self, guest: PendingConnection, reason: str) -> None:
        self._count(reason)
        self.drop(guest)
        guest.cut()

    def _count(self, reason: str) -> None:
        self._cuts[reason] += 1
        log.debug("cut a connection: %s", reason)


def _is_of(guest: PendingConnection, connection: OpenConnection) -> bool:
    return isinstance(guest, Leaving) and guest.connection is connection


class DroppedConnectionsCollector(Collector):
    """`headstart_connections_cut_total{reason}`."""

    def __init__(self, cuts: DroppedConnections) -> None:
        self._cuts = cuts

    def collect(self) -> Iterable[Metric]:
        what = "Connections cut that were no session, or none any more, by reason"
        family = CounterMetricFamily("headstart_connections_cut", what, labels=["reason"])
        for reason, count in self._cuts.items():
            family.add_metric([reason], count)
        yield family
