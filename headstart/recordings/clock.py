"""The time of day of a feed's messages, and how many of them never came."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

UNCOUNTED = ("hello", "live", "chunk")
"""Sent to one watcher alone, or to those who asked: they take no number of their own."""


def number(value: Any) -> float | None:
    """A number as such; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        made = float(value)
    except OverflowError:
        return None
    return made if math.isfinite(made) else None


class FeedClock:
    """Told every message, in order. No I/O."""

    def __init__(self) -> None:
        self.hello: dict[str, Any] = {}
        self.base_ms = 0.0
        """The server's start, in ms since 1970; 0 where the greeting does not say."""
        self.now_ms = 0.0
        """When the newest message came, in ms since the server's start."""
        self.is_live = False
        """The ring is over."""
        self.missed = 0
        self.runs = 0
        self._seq: float | None = None
        self._recovered = 0

    def hear(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == "hello":
            self._greeted(message)
            return
        at_ms = number(message.get("at_ms"))
        self.now_ms = max(self.now_ms, at_ms or 0.0)
        # A snapshot is in no ring: with the first one the ring is over, whatever is missing.
        if kind in ("live", "snapshot"):
            self.is_live = True
        seq = number(message.get("seq"))
        if kind not in UNCOUNTED and seq is not None:
            self._count(seq)

    def wall_ms(self, message: dict[str, Any]) -> float:
        """When a message was first sent, in ms since 1970."""
        return self.base_ms + (number(message.get("at_ms")) or 0.0)

    def _greeted(self, hello: dict[str, Any]) -> None:
        if hello.get("run") != self.hello.get("run") or not self.hello:
            self.runs += 1
            self._seq = None
            self.now_ms = 0.0
        self.hello = hello
        self.is_live = False
        self._recovered = 0
        self.base_ms = epoch_ms(hello.get("started_at")) or 0.0
        self.now_ms = max(self.now_ms, number(hello.get("at_ms")) or 0.0)

    def _count(self, seq: float) -> None:
        """What the ring brought again was not missed."""
        if not self.is_live:
            self._recovered += self._seq is not None and seq > self._seq
            return
        if self._seq is not None:
            self.missed += max(0, int(seq - self._seq - 1 - self._recovered))
        self._recovered = 0
        self._seq = max(seq, self._seq or seq)


def epoch_ms(text: Any) -> float | None:
    """Of a time of day as the feed writes it; None for anything else."""
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000
    except (TypeError, ValueError, OverflowError):
        return None


def time_of_day(wall_ms: float) -> str:
    """In UTC, to the millisecond; what no calendar has is told as "?"."""
    try:
        at = datetime.fromtimestamp(wall_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return "?"
    return at.strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03d}"
