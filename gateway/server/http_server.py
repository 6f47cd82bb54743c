"""uvicorn's server with our own way in, and our own way out."""

from __future__ import annotations

import asyncio
import logging
import socket
from types import FrameType

import uvicorn

from headstart.gateway.connection.pending import Patience
from headstart.gateway.runtime import tasks
from headstart.gateway.server.accept import Acceptor
from headstart.gateway.server.app import Gateway

log = logging.getLogger("headstart.serve")


class GatewayServer(uvicorn.Server):
    """A server whose first SIGTERM or SIGINT drains and whose second ends at once."""

    def __init__(
        self, config: uvicorn.Config, gateway: Gateway, patience: Patience | None = None
    ) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._drain: asyncio.Task[None] | None = None
        self._reception = Acceptor(
            config,
            self.server_state,
            gateway.dropped_connections,
            patience,
            failed=self._leave_at_once,
        )
        if gateway.descriptors is not None:
            gateway.descriptors.guests = lambda: len(self._reception.guests)
        self._loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """In place of uvicorn's, which lets everybody in and waits for ever."""
        assert sockets is not None
        await self.lifespan.startup()
        (listening,) = sockets
        self._reception.open(listening)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """In place of uvicorn's, which fails over some connections and reports those it has to
        give up as errors."""
        await self._reception.close()
        for listening in sockets or ():
            listening.close()
        grace_s = self.config.timeout_graceful_shutdown or 0
        await self._reception.see_out(grace_s, lambda: self.force_exit)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._gateway.draining:
            self.should_exit = True
            self.force_exit = True
        leave = tasks.guard(self.leave, "drain", self._leave_at_once)
        self._loop.call_soon_threadsafe(leave)

    def leave(self) -> None:
        """Begin the graceful end, once."""
        if self._drain is None:
            log.info("shutting down: waiting for answers under way (again to end at once)")
            self._drain = tasks.own(self._leave(), "drain", self._leave_at_once)

    def _leave_at_once(self, _: BaseException) -> None:
        self.should_exit = True

    async def _leave(self) -> None:
        await self._gateway.drain()
        self.should_exit = True
