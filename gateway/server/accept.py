"""Accepts and closes connections, and bounds the pending ones.

uvicorn has no time limit for slow requests, silent connections, clients that do not read the
response, or close frames that do not get through. `gateway.connection.pending` defines the limits.

"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable

import uvicorn

from headstart.gateway.connection.pending import (
    DroppedConnections,
    PendingConnections,
    PendingLimits,
)
from headstart.gateway.runtime import tasks
from headstart.gateway.server.http1 import Http
from headstart.gateway.transport.uvicorn_hooks import ServerState, answering, connections, tls

log = logging.getLogger("headstart.accept")

NO_DESCRIPTOR_WAIT_S = 0.02
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
ACCEPT_WAIT_S_MIN, ACCEPT_WAIT_S_MAX = 0.001, 1.0
GONE_WAIT_S_MAX = 0.02
# Errors of a single incoming connection (accept(2)); the next one may succeed.
GONE_ALREADY = (
    errno.ECONNABORTED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EINTR,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENOPROTOOPT,
    errno.EPERM,
    errno.EPROTO,
    errno.ETIMEDOUT,
)
CLOSE_POLL_S = 0.05
TASKS_WAIT_S = 1.0

Accept = Callable[[socket.socket], Awaitable[tuple[socket.socket, object]]]


class TlsHandshake:
    """A connection from its arrival to the end of its TLS handshake."""

    stage = "handshake"
    waits_for_peer = True

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None

    def cut(self) -> None:
        assert self.task is not None
        self.task.cancel()


class Acceptor:
    """Accepts on one listening socket, in place of uvicorn's `asyncio.Server`. On the loop. Call
    `close` before closing the socket, then `close_connections`. `accept`: the loop's `sock_accept`;
    `failed`: called when accepting or checking has failed for good."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        dropped: DroppedConnections,
        limits: PendingLimits | None = None,
        accept: Accept | None = None,
        failed: tasks.Failed = tasks.nothing_depends_on_it,
    ) -> None:
        self._failed = failed
        self._config, self._state = config, state
        self.pending = PendingConnections(limits or PendingLimits(), dropped)
        self._loop = asyncio.get_running_loop()
        self._accept_one: Accept = self._loop.sock_accept if accept is None else accept
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None

    def open(self, listening: socket.socket) -> None:
        listening.setblocking(False)
        self._accepting = tasks.own(self._accept(listening), "accept", self._failed)
        self._checking = tasks.own(self._check_pending(), "guests", self._failed)

    async def close(self) -> None:
        """Stop accepting; existing connections are still checked."""
        working = [*self._handshakes, *([] if self._accepting is None else [self._accepting])]
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)

    async def close_connections(self, grace_s: float, is_forced: Callable[[], bool]) -> None:
        """Close every connection: idle ones at once, running responses within `grace_s` unless
        `is_forced()`; the rest is dropped."""
        here, answers = connections(self._state), answering(self._state)
        for connection in list(here):
            try:
                connection.shutdown()
            except Exception as error:  # a fault of ours; the others are still to be closed
                tasks.report("shutdown", error)
                connection.cut()
        end_s = self._loop.time() + grace_s
        while here and self._loop.time() < end_s and not is_forced():
            await asyncio.sleep(CLOSE_POLL_S)
        for connection in list(here):
            connection.cut()
        if answers:
            _, late = await asyncio.wait(list(answers), timeout=TASKS_WAIT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)

    # --- in ---------------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        wait_s = 0.0
        while True:
            try:
                peer, _ = await self._accept_one(listening)
            except OSError as error:
                wait_s = self._not_accepted(error, wait_s)
                await asyncio.sleep(wait_s)
                continue
            wait_s = 0.0
            if (
                len(self.pending) >= self.pending.limits.pending_max
                and not self.pending.make_room()
            ):
                self.pending.count_rejected()
                peer.close()
                continue
            handshake = TlsHandshake()
            handshake.task = task = tasks.own(
                self._handshake(handshake, peer), "connection", tasks.nothing_depends_on_it
            )
            self.pending.add(handshake, self._loop.time())
            self._handshakes.add(task)

    def _not_accepted(self, error: OSError, waited_s: float) -> float:
        """How long to wait before the next try, in s. A persistent error is retried at most once a
        second and logged when it begins. An error that a peer can cause delays the others only
        briefly."""
        if error.errno in NO_DESCRIPTOR:
            self.pending.make_room()
            return NO_DESCRIPTOR_WAIT_S  # until a descriptor is closed
        if error.errno in GONE_ALREADY:
            return min(max(2 * waited_s, ACCEPT_WAIT_S_MIN), GONE_WAIT_S_MAX)
        if waited_s == 0:
            log.error("no connection can be accepted, trying again: %s", error)
        return min(max(2 * waited_s, ACCEPT_WAIT_S_MIN), ACCEPT_WAIT_S_MAX)

    async def _handshake(self, handshake: TlsHandshake, peer: socket.socket) -> None:
        http = Http(self.pending, self._config, self._state)
        try:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(lambda: http, peer, ssl=tls(self._config))
        except asyncio.CancelledError:
            http.abandon()
            raise
        except OSError as error:  # includes TLS errors
            log.debug("a connection came to nothing: %s", error)
            peer.close()
        except Exception:
            peer.close()
            raise  # a fault of ours; other connections are still accepted
        finally:
            self.pending.drop(handshake)
            self._handshakes.discard(asyncio.current_task())

    # --- while they are here ----------------------------------------------------------------------

    async def _check_pending(self) -> None:
        every_s, looked_s = self.pending.limits.check_every_s, self._loop.time()
        while True:
            await asyncio.sleep(every_s)
            now_s = self._loop.time()
            late_s, looked_s = now_s - looked_s - every_s, now_s
            try:
                if late_s > every_s:
                    self.pending.excuse(late_s, now_s)
                self.pending.drop_expired(now_s, connections(self._state))
            except Exception as error:  # a fault of ours; no one else checks the connections
                tasks.report("guests", error)
