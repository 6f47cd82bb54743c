"""Counts of a soak: what was done, what was observed, and which promises were broken."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, field

from headstart.benchmarks import report

COMPLAINTS_KEPT = 40


@dataclass
class Trouble:
    """A fault was active between these instants of `time.monotonic`."""

    began_s: float
    ended_s: float = math.inf


@dataclass
class Tally:
    """`did` and `saw` are counts; `complaints` are broken promises, the first ones in words.

    While a fault is active (`trouble`), a missing answer is `excused` and counted. What must hold
    even then is reported by `complain(always=True)`.
    """

    did: Counter[str] = field(default_factory=Counter)
    saw: Counter[str] = field(default_factory=Counter)
    complaints: int = 0
    excused: int = 0
    told: list[str] = field(default_factory=list)
    heard_s: float = 0.0
    """Seconds of audio sent, over all sessions."""
    _troubles: list[Trouble] = field(default_factory=list)

    def trouble(self) -> Trouble:
        """Mark a fault as active until its `ended_s` is set."""
        self._troubles.append(Trouble(time.monotonic()))
        return self._troubles[-1]

    def complain(self, what: str, since_s: float | None = None, *, always: bool = False) -> None:
        """Record a broken promise about something that began at `since_s`; None: just now."""
        now_s = time.monotonic()
        began_s = now_s if since_s is None else since_s
        if not always and any(t.began_s <= now_s and began_s <= t.ended_s for t in self._troubles):
            self.excused += 1
            return
        self.complaints += 1
        if len(self.told) < COMPLAINTS_KEPT:
            self.told.append(what)
            report.say(f"soak: {what}")
