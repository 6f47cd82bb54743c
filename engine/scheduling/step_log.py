"""What the engine's steps took and held, added up between two reports. No I/O, no clock."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from headstart.engine.api import (
    STEP_SECONDS_LE,
    STEP_SESSIONS_LE,
    STEP_TOKENS_LE,
    Counts,
    StepStats,
    StepTotals,
)
from headstart.engine.kvcache.token_stream import Stream

DURATIONS_KEPT = 4096
"""Newest ones, of which there are percentiles; a busy second has some hundreds."""
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a backend did in one step: for which streams, and how many tokens."""

    streams: frozenset[Stream] = frozenset()
    prefill_tokens: int = 0
    decode_tokens: int = 0


class Histogram:
    """Values counted by bucket; `edges` are inclusive."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = edges
        self._buckets = [0] * (len(edges) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._buckets[bisect_left(self._edges, value)] += 1
        self._sum += value

    def counts(self) -> Counts:
        return Counts(list(self._buckets), round(self._sum, 6))


class StepLog:
    """`add` a step, `take` what has come together. Bounded, whether or not anybody takes it.
    `totals` are of all steps."""

    def __init__(self) -> None:
        self._seconds: dict[str, Histogram] = {}
        self._tokens: dict[str, Histogram] = {}
        self._at_once = Histogram(STEP_SESSIONS_LE)
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
        phase = _phase(prefill_tokens, decode_tokens)
        self._seconds.setdefault(phase, Histogram(STEP_SECONDS_LE)).add(duration_ns / NS_PER_S)
        self._at_once.add(sessions)
        for kind, tokens in (("prefill", prefill_tokens), ("decode", decode_tokens)):
            if tokens:
                self._tokens.setdefault(kind, Histogram(STEP_TOKENS_LE)).add(tokens)

    def totals(self) -> StepTotals:
        """All since the engine started."""
        return StepTotals(
            {phase: histogram.counts() for phase, histogram in self._seconds.items()},
            {kind: histogram.counts() for kind, histogram in self._tokens.items()},
            self._at_once.counts(),
        )

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


def _phase(prefill_tokens: int, decode_tokens: int) -> str:
    if prefill_tokens and decode_tokens:
        return "mixed"
    if prefill_tokens:
        return "prefill"
    return "decode" if decode_tokens else "other"


def _ms(ns: int) -> float:
    return round(ns / NS_PER_MS, 3)
