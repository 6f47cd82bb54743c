"""Lets recorded time pass: as it did, faster, or not at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from headstart.recordings.clock import number
from headstart.recordings.reader import Json


class Pace:
    """Says how long to wait before a message is due. `speed` None: never."""

    def __init__(
        self, speed: float | None = 1.0, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._speed = speed
        self._now_s = now_s
        self._begun_s = 0.0
        self._begun_ms: float | None = None

    def wait_s(self, message: Json) -> float:
        """0.0 for what is due. The greeting sets the clock, and so does a jump back; what a ring
        brings was sent before it, and is due at once."""
        at_ms = number(message.get("at_ms"))
        if self._speed is None or at_ms is None:
            return 0.0
        if self._begun_ms is None or message.get("type") == "hello":
            self._begun_ms, self._begun_s = at_ms, self._now_s()
        due_s = self._begun_s + (at_ms - self._begun_ms) / 1000 / self._speed
        return max(0.0, due_s - self._now_s())

    def wait(self, message: Json) -> None:
        """Sleeps until a message is due."""
        left_s = self.wait_s(message)
        if left_s > 0:
            time.sleep(left_s)

    async def until(self, message: Json) -> None:
        """The same on an event loop; lets others have their turn of it in any case."""
        await asyncio.sleep(self.wait_s(message))
