"""When a silence after an answer has lasted long enough: no I/O, and time is the sample clock's.

an answer is over ─▶ armed ─(nobody speaks, nothing plays)─▶ counting ─▶ it is time
                       ▲──────── speech, an answer ────────────┘
"""

from __future__ import annotations


class IdleClock:
    """One session's. Samples of 16 kHz since it began."""

    def __init__(self) -> None:
        self.armed = False
        self._since_sample: int | None = None

    def arm(self) -> None:
        """An answer is over; silence counts from the next look on."""
        self.armed, self._since_sample = True, None

    def look(self, now_sample: int, timeout_samples: int, *, busy: bool) -> tuple[int, int] | None:
        """The silence, once it has lasted `timeout_samples`: its first sample and the one behind
        it; after that there is none before another answer. `busy`: somebody speaks or is heard, or
        nobody wants to know."""
        if not self.armed:
            return None
        if busy:
            self._since_sample = None
            return None
        if self._since_sample is None:
            self._since_sample = now_sample
        if now_sample - self._since_sample < timeout_samples:
            return None
        self.armed = False
        return self._since_sample, self._since_sample + timeout_samples
