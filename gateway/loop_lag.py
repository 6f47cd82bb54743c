"""How late the event loop runs what is due: the one number that says whether everybody is served.

A timer every `INTERVAL_S`; what it is late by is a lag. The last `WINDOW_S` are kept, so the cost
is 100 wake-ups a second and 1000 numbers.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import NamedTuple

INTERVAL_S = 0.01
WINDOW_S = 10.0


class LagSummary(NamedTuple):
    """Of the last `WINDOW_S`, in ms; zeros before the first timer."""

    p50_ms: float
    p99_ms: float
    max_ms: float


class LoopLag:
    """`run` beside the server; `summary` at any time."""

    def __init__(self) -> None:
        self._lags_s: deque[float] = deque(maxlen=round(WINDOW_S / INTERVAL_S))

    def add(self, lag_s: float) -> None:
        self._lags_s.append(max(lag_s, 0.0))

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            self.add(loop.time() - due_s)

    def summary(self) -> LagSummary:
        """Percentiles by nearest rank."""
        ranked = sorted(self._lags_s)
        if not ranked:
            return LagSummary(0.0, 0.0, 0.0)
        at = [ranked[math.ceil(len(ranked) * share) - 1] for share in (0.5, 0.99, 1.0)]
        return LagSummary(*(round(lag_s * 1000, 2) for lag_s in at))
