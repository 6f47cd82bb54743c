"""How late the event loop runs what is due: the one number that says whether everybody is served.

A timer every `INTERVAL_S`; what it is late by is a lag. `own` is the part of it in which this
process was computing: the rest, if any, is other processes' doing on a shared machine. The last
`WINDOW_S` are kept, so the cost is 100 wake-ups a second and 2000 numbers.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from headstart.engine.api import STEP_SECONDS_LE

INTERVAL_S = 0.01
WINDOW_S = 10.0


class LagSummary(NamedTuple):
    """Of the last `WINDOW_S`, in ms; zeros before the first timer."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    own_p50_ms: float
    own_p99_ms: float


class LoopLag:
    """`run` beside the server; `summary` at any time."""

    def __init__(self) -> None:
        kept = round(WINDOW_S / INTERVAL_S)
        self._lags_s: deque[float] = deque(maxlen=kept)
        self._own_s: deque[float] = deque(maxlen=kept)
        self.counts = [0] * (len(STEP_SECONDS_LE) + 1)
        """Of all timers since the start, by bucket; the last one is for those above all edges."""
        self.sum_s = 0.0

    def add(self, lag_s: float, computed_s: float) -> None:
        """One timer's lag, and the process's time on processors since it was set."""
        self._lags_s.append(max(lag_s, 0.0))
        self.counts[bisect_left(STEP_SECONDS_LE, lag_s)] += 1
        self.sum_s += max(lag_s, 0.0)
        self._own_s.append(max(min(lag_s, computed_s), 0.0))

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due_s, computed_s = loop.time() + INTERVAL_S, time.process_time()
            await asyncio.sleep(INTERVAL_S)
            self.add(loop.time() - due_s, time.process_time() - computed_s)

    def summary(self) -> LagSummary:
        """Percentiles by nearest rank."""
        lags_ms, own_ms = _percentiles_ms(self._lags_s), _percentiles_ms(self._own_s)
        return LagSummary(*lags_ms, *own_ms[:2])


def _percentiles_ms(lags_s: Iterable[float]) -> list[float]:
    """p50, p99 and the most."""
    ranked = sorted(lags_s) or [0.0]
    return [round(ranked[math.ceil(len(ranked) * p) - 1] * 1000, 2) for p in (0.5, 0.99, 1.0)]
