"""The feed of one server: who watches, a snapshot a second while anybody does, and the recorder."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable

from headstart.gateway.dashboard.hub import Hub
from headstart.gateway.dashboard.messages import THRESHOLDS, VERSION, Json, Message
from headstart.gateway.dashboard.ring import TURNS_MAX
from headstart.gateway.dashboard.watcher import Watcher
from headstart.gateway.runtime import tasks

log = logging.getLogger("headstart.dashboard")

WATCHERS_MAX = 16
SNAPSHOT_S = 1.0
CLOSE_INTERNAL_ERROR = 1011


class Dashboard:
    """`facts`: what the greeting says of the server; `look`: what a snapshot does. On the loop."""

    def __init__(self, hub: Hub, facts: Callable[[], Json], look: Callable[[], Json]) -> None:
        self.hub = hub
        self.run_id = f"run_{secrets.token_hex(12)}"
        self._facts = facts
        self._look = look
        self._looking: asyncio.Task[None] | None = None
        hub.on_watched = self._begin

    @property
    def is_full(self) -> bool:
        """Whether nobody else may watch."""
        return self.hub.watchers >= WATCHERS_MAX

    def watch(self, watcher: Watcher) -> list[Message]:
        """As of `Hub.watch`, with this server's greeting."""
        return self.hub.watch(watcher, self._hello)

    def _hello(self) -> Json:
        return {
            "version": VERSION,
            "run": self.run_id,
            "started_at": self.hub.started_at,
            "ring": TURNS_MAX,
            **self._facts(),
            "thresholds": THRESHOLDS,
        }

    def _begin(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = tasks.own(self._every_second(), "dashboard", self._failed)

    async def _every_second(self) -> None:
        """Until nobody looks any more."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while self.hub.is_watched:
            self.hub.snapshot(self._look())
            due_s = max(due_s + SNAPSHOT_S, loop.time())  # what was missed is not made up for
            await asyncio.sleep(due_s - loop.time())

    def _failed(self, _: BaseException) -> None:
        """Without snapshots a feed looks alive and is not: whoever watches is sent away, and may
        come again."""
        self.hub.end(CLOSE_INTERNAL_ERROR, "internal error")
