"""Where connections come in, and how long one may take to say what it wants.

uvicorn waits for ever: for a request that comes by a byte a minute, for nothing at all, for who
does not read the answer, for a close that does not get through. Here, from the connection on or
from the last answer on:

    handshake  TLS                                              `HEAD_S`
    head       a request's first lines                          `HEAD_S`
    exchange   the rest of it, our answer, and its reading      `EXCHANGE_S`
    closing    after our goodbye or theirs, sessions' too       `CLOSING_S`

and then the connection is cut and counted. Bound: `GUESTS_MAX` connections that are no session; one
more, or no descriptor left, cuts the oldest that still owes us something: who means it is through
in milliseconds (`crowded`). One look a second at all connections is cheaper than a timer for each.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import Counter
from collections.abc import Iterable
from typing import Any

import h11
import uvicorn
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

log = logging.getLogger("headstart.reception")

HEAD_S = 10.0
EXCHANGE_S = 60.0
CLOSING_S = 5.0
LOOK_EVERY_S = 1.0
GUESTS_MAX = 256
NO_DESCRIPTOR_WAIT_S = 0.02
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Cuts = Counter[str]
"""Connections cut, by reason."""


class Http(H11Protocol):
    """uvicorn's HTTP. `guests` tell since when each connection is due something. What a client
    sends right behind its upgrade request, uvicorn drops; here the session gets it."""

    def __init__(self, *, guests: dict[Guest, float], **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._guests = guests

    @property
    def owes_us(self) -> bool:
        """The peer has not sent its request to the end."""
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    @property
    def stage(self) -> tuple[str, float]:
        """What it is at, and how long that may take in all."""
        head = self.conn.their_state is h11.IDLE
        return ("head", HEAD_S) if head else ("exchange", EXCHANGE_S)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._guests[self] = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._guests.pop(self, None)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        if self._guests.pop(self, None) is not None:
            self._guests[self] = self.loop.time()  # behind the others again
        super().on_response_complete()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._guests.pop(self, None)
        early, _ = self.conn.trailing_data
        super().handle_websocket_upgrade(event)
        if early:
            self.transport.get_protocol().data_received(early)  # type: ignore[attr-defined]

    def cut(self) -> None:
        self.transport.abort()


class Shaking:
    """A connection from its arrival to the end of its TLS handshake."""

    owes_us = True
    stage = ("handshake", HEAD_S)

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None

    def cut(self) -> None:
        assert self.task is not None
        self.task.cancel()


Guest = Http | Shaking


class Reception:
    """Accepts on one listening socket, for uvicorn, which takes it for an `asyncio.Server`. On the
    loop; `close` before the socket."""

    def __init__(self, config: uvicorn.Config, state: ServerState, cuts: Cuts) -> None:
        self._config, self._state, self._cuts = config, state, cuts
        self._guests: dict[Guest, float] = {}  # since when, the oldest first
        self._closing: dict[Any, float] = {}  # connections, and when that was first seen
        self._loop = asyncio.get_running_loop()
        self._shaking: set[asyncio.Task[None]] = set()
        self._working: list[asyncio.Task[None]] = []

    def open(self, listening: socket.socket) -> None:
        listening.setblocking(False)
        for work in (self._accept(listening), self._look_after()):
            self._working.append(self._loop.create_task(work))

    def close(self) -> None:
        """Accept nobody any more; who has come is still looked after."""
        self._working[0].cancel()
        for task in self._shaking:
            task.cancel()

    async def wait_closed(self) -> None:
        """uvicorn's last word: nobody is left, or nobody is waited for any more."""
        self._working[1].cancel()
        await asyncio.gather(*self._working, *self._shaking, return_exceptions=True)

    # --- in ---------------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                peer, _ = await self._loop.sock_accept(listening)
            except OSError as error:  # or the peer has gone already
                if error.errno in NO_DESCRIPTOR:
                    self._make_room()
                    await asyncio.sleep(NO_DESCRIPTOR_WAIT_S)  # until it is closed
                continue
            if len(self._guests) >= GUESTS_MAX and not self._make_room():
                self._count("crowded")
                peer.close()
                continue
            guest = Shaking()
            guest.task = task = self._loop.create_task(self._let_in(guest, peer))
            self._guests[guest] = self._loop.time()
            self._shaking.add(task)
            task.add_done_callback(self._shaking.discard)

    async def _let_in(self, guest: Shaking, peer: socket.socket) -> None:
        try:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(self._http, peer, ssl=self._config.ssl)
        except OSError as error:  # TLS's are among them
            log.debug("a connection came to nothing: %s", error)
            peer.close()
        finally:
            self._guests.pop(guest, None)

    def _http(self) -> Http:
        return Http(
            guests=self._guests, config=self._config, server_state=self._state, app_state={}
        )

    # --- out --------------------------------------------------------------------------------------

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now_s = self._loop.time()
            for guest, since_s in list(self._guests.items()):
                what, allowed_s = guest.stage
                if now_s - since_s > allowed_s:
                    self._cut(guest, what)
            self._closing = {
                connection: self._closing.get(connection, now_s)
                for connection in self._state.connections
                if connection.transport.is_closing()
            }
            for connection, since_s in self._closing.items():
                if now_s - since_s > CLOSING_S:
                    self._count("closing")
                    connection.transport.abort()

    def _make_room(self) -> bool:
        """Cut the oldest guest that owes us something; False: there is none."""
        oldest = next((guest for guest in self._guests if guest.owes_us), None)
        if oldest is None:
            return False
        self._cut(oldest, "crowded")
        return True

    def _cut(self, guest: Guest, reason: str) -> None:
        self._count(reason)
        self._guests.pop(guest, None)
        guest.cut()

    def _count(self, reason: str) -> None:
        self._cuts[reason] += 1
        log.debug("cut a connection: %s", reason)


class CutsCollector(Collector):
    """`headstart_connections_cut_total{reason}`."""

    def __init__(self, cuts: Cuts) -> None:
        self._cuts = cuts

    def collect(self) -> Iterable[Metric]:
        what = "Connections cut that were no session, or none any more, by reason"
        family = CounterMetricFamily("headstart_connections_cut", what, labels=["reason"])
        for reason, count in self._cuts.items():
            family.add_metric([reason], count)
        yield family
