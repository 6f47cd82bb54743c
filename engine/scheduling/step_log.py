"""What the engine's steps took and held, added up between two reports. No I/O, no clock."""

from __future__ import annotations

import math
from collections import deque

from headstart.engine.api import StepStats

DURATIONS_KEPT = 4096
"""Newest ones, of which there are percentiles; a busy second has some hundreds."""
NS_PER_MS = 1_000_000


class StepLog:
    """`add` a step, `take` what has come together. Bounded, whether or not anybody takes it."""

    def __init__(self) -> None:
        self._durations_ns: deque[int] = deque(maxlen=DURATIONS_KEPT)
        self._reset()

    def _reset(self) -> None:
        self._durations_ns.clear()
        self._count = self._busy_ns = self._max_ns = 0
        self._prefill = self._decode = self._sessions = self._queue_max = 0

    def add(
        self,
        duration_ns: int,
        *,
        sessions: int,
        queue: int = 0,
        prefill_tokens: int = 0,
        decode_tokens: int = 0,
    ) -> None:
        """One step. `sessions`: it worked for so many; `queue`: so many waited meanwhile."""
        duration_ns = max(0, duration_ns)
        self._durations_ns.append(duration_ns)
        self._count += 1
        self._busy_ns += duration_ns
        self._max_ns = max(self._max_ns, duration_ns)
        self._sessions += sessions
        self._queue_max = max(self._queue_max, queue)
        self._prefill += prefill_tokens
        self._decode += decode_tokens

    def take(self) -> StepStats:
        """All since the last time."""
        if not self._count:
            return StepStats()
        ranked = sorted(self._durations_ns)
        taken = StepStats(
            count=self._count,
            busy_ms=_ms(self._busy_ns),
            p50_ms=_ms(ranked[math.ceil(len(ranked) * 0.5) - 1]),
            p95_ms=_ms(ranked[math.ceil(len(ranked) * 0.95) - 1]),
            max_ms=_ms(self._max_ns),
            prefill_tokens=self._prefill,
            decode_tokens=self._decode,
            sessions=self._sessions,
            queue_max=self._queue_max,
        )
        self._reset()
        return taken


def _ms(ns: int) -> float:
    return round(ns / NS_PER_MS, 3)
