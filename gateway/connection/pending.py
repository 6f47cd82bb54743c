"""Connections that are no session: how long each may stay, and which goes when there are too many.

A connection is a pending connection from its arrival until a session has it, whatever it is told in
between, and again when the session has said goodbye:

    handshake  TLS                                              `head_s`
    head       a request's first lines                          `head_s`
    exchange   the rest of it, our answer, and its reading      `exchange_s`
    upgrade    from a WebSocket's request to its session        `exchange_s`
    closing    after our goodbye or theirs, sessions' too       `closing_s`

and then it is cut and counted. Bound: `guests_max`; one more, or no descriptor left, cuts the one
that has waited longest for its peer, or else the oldest: who means it is through in milliseconds
(`crowded`). One look a second at all connections is cheaper than a timer for each.
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
class Patience:
    """How long guests may take, how often is looked, and how many there may be."""

    head_s: float = HEAD_S
    exchange_s: float = 60.0
    closing_s: float = 5.0
    look_every_s: float = 1.0
    guests_max: int = PENDING_MAX

    def allowed_s(self, stage: str) -> float:
        """How long a stage may take in all."""
        return {"exchange": self.exchange_s, "upgrade": self.exchange_s}.get(
            stage, self.closing_s if stage == "closing" else self.head_s
        )


class PendingConnection(Protocol):
    """A connection that is no session."""

    @property
    def stage(self) -> str:
        """What it is at: one of the table above."""
        ...

    @property
    def waits_for_peer(self) -> bool:
        """It is not we who are due something."""
        ...

    def cut(self) -> None:
        """End it at once."""
        ...


class OpenConnection(Protocol):
    """Any connection of the server's, sessions' too."""

    @property
    def is_leaving(self) -> bool:
        """One side has said goodbye."""
        ...

    def cut(self) -> None:
        """End it at once."""
        ...


class Leaving:
    """A connection on which one side has said goodbye."""

    stage = "closing"
    waits_for_peer = True

    def __init__(self, connection: OpenConnection) -> None:
        self.connection = connection

    def cut(self) -> None:
        self.connection.cut()


class Guests:
    """All guests of one server, and since when each is at what it is at. On the loop."""

    def __init__(self, patience: Patience, cuts: DroppedConnections) -> None:
        self.patience = patience
        self._cuts = cuts
        self._since: dict[PendingConnection, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def add(self, guest: PendingConnection, now_s: float) -> None:
        """It begins something now."""
        self._since[guest] = now_s

    def drop(self, guest: PendingConnection) -> float | None:
        """It is none any more. Since when it was; None: it was none."""
        return self._since.pop(guest, None)

    def look(self, now_s: float, connections: Iterable[OpenConnection]) -> None:
        """Cut those whose time is over. `connections`: all of the server, sessions' too."""
        open_ones = set(connections)
        leaving = {guest.connection for guest in self._since if isinstance(guest, Leaving)}
        for connection in leaving - open_ones:
            self._since = {g: s for g, s in self._since.items() if not _is_of(g, connection)}
        for connection in open_ones - leaving:
            if connection.is_leaving:
                self.drop(cast(PendingConnection, connection))  # if it is one
                self.add(Leaving(connection), now_s)
        for guest, since_s in list(self._since.items()):
            if now_s - since_s > self.patience.allowed_s(guest.stage):
                self._cut(guest, guest.stage)

    def make_room(self) -> bool:
        """Cut the one that has waited longest for its peer, or else the oldest. False: there is
        none."""
        if not self._since:
            return False
        waiting = [guest for guest in self._since if guest.waits_for_peer]
        self._cut(min(waiting or self._since, key=self._since.__getitem__), "crowded")
        return True

    def turned_away(self) -> None:
        """A connection that found no place."""
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
