"""uvicorn's server with our own accepting and closing of connections."""

from __future__ import annotations

import asyncio
import logging
import socket

import uvicorn

from headstart.gateway.connection.pending import Patience
from headstart.gateway.runtime import tasks
from headstart.gateway.server.accept import Acceptor
from headstart.gateway.server.app import Gateway
from headstart.gateway.transport.uvicorn_hooks import Server

log = logging.getLogger("headstart.serve")


class GatewayServer(Server):
    """A server whose first SIGTERM or SIGINT drains it and whose second ends it at once."""

    def __init__(
        self, config: uvicorn.Config, gateway: Gateway, patience: Patience | None = None
    ) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._drain: asyncio.Task[None] | None = None
        self._reception = Acceptor(
            config,
            self.state,
            gateway.dropped_connections,
            patience,
            failed=self._leave_at_once,
        )
        if gateway.descriptors is not None:
            gateway.descriptors.guests = lambda: len(self._reception.guests)
        self._loop = asyncio.get_running_loop()

    def let_in(self, listening: socket.socket) -> None:
        self._reception.open(listening)

    async def let_in_no_more(self) -> None:
        await self._reception.close()

    async def see_out(self, grace_s: float) -> None:
        await self._reception.see_out(grace_s, lambda: self.hurries)

    def signalled(self) -> None:
        if self._gateway.draining:
            self.hurry()
        leave = tasks.guard(self.leave, "drain", self._leave_at_once)
        self._loop.call_soon_threadsafe(leave)

    def leave(self) -> None:
        """Begin the graceful shutdown; only the first call counts."""
        if self._drain is None:
            log.info("shutting down: waiting for answers under way (again to end at once)")
            self._drain = tasks.own(self._leave(), "drain", self._leave_at_once)

    def _leave_at_once(self, _: BaseException) -> None:
        self.end()

    async def _leave(self) -> None:
        await self._gateway.drain()
        self.end()
