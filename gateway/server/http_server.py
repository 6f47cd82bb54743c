"""uvicorn's server with our own accepting and closing of connections."""

from __future__ import annotations

import asyncio
import logging
import socket

import uvicorn

from headstart.gateway.connection.pending import PendingLimits
from headstart.gateway.runtime import tasks
from headstart.gateway.server.accept import Acceptor
from headstart.gateway.server.app import Gateway
from headstart.gateway.transport.uvicorn_hooks import Server

log = logging.getLogger("headstart.serve")


class GatewayServer(Server):
    """A server whose first SIGTERM or SIGINT drains it and whose second ends it at once."""

    def __init__(
        self, config: uvicorn.Config, gateway: Gateway, limits: PendingLimits | None = None
    ) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._drain: asyncio.Task[None] | None = None
        self._acceptor = Acceptor(
            config,
            self.state,
            gateway.dropped_connections,
            limits,
            failed=self.leave_at_once,
        )
        if gateway.descriptors is not None:
            gateway.descriptors.pending = lambda: len(self._acceptor.pending)
        self._loop = asyncio.get_running_loop()

    def start_accepting(self, listening: socket.socket) -> None:
        self._acceptor.open(listening)

    async def stop_accepting(self) -> None:
        await self._acceptor.close()

    async def close_connections(self, grace_s: float) -> None:
        await self._acceptor.close_connections(grace_s, lambda: self.is_forced)

    def on_signal(self) -> None:
        if self._gateway.draining:
            self.end_now()
        leave = tasks.guard(self.leave, "drain", self.leave_at_once)
        self._loop.call_soon_threadsafe(leave)

    def leave(self) -> None:
        """Begin the graceful shutdown; only the first call counts."""
        if self._drain is None:
            log.info("shutting down: waiting for answers under way (again to end at once)")
            self._drain = tasks.own(self._leave(), "drain", self.leave_at_once)

    def leave_at_once(self, _: BaseException) -> None:
        """A part of the shutdown has failed."""
        self.end()

    async def _leave(self) -> None:
        await self._gateway.drain()
        self.end()
