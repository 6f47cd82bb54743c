"""A circuit breaker: after failures a node is left alone for a while, then tried once.

closed ──failures──▶ open ──cool-down──▶ half-open ──probe succeeds──▶ closed
                      ▲                      │
                      └────probe fails───────┘   with a cool-down twice as long
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from headstart.engine.errors import BadSettings

NS_PER_MS = 1_000_000
OUTCOMES_KEPT = 256  # the oldest is forgotten first


class BreakerState(StrEnum):
    """CLOSED lets requests through, OPEN none, HALF_OPEN one that tells whether it is
    over."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """When a breaker opens, and for how long. Raises `BadSettings` for a value out of range.

    Attributes:
        failures, failure_share: it opens when, within `window_ms`, there were at least so many
            failures and they were at least this share of all outcomes.
        cool_down_ms, longest_cool_down_ms: the first time open; each one that follows is twice as
            long, up to the longest.
        calm_ms: closed for so long, it begins with the first cool-down again.
        probe_timeout_ms: a probe without an outcome after this time counts as lost, and another one
            may go.
    """

    failures: int = 3
    failure_share: float = 0.5
    window_ms: int = 10_000
    cool_down_ms: int = 1_000
    longest_cool_down_ms: int = 30_000
    calm_ms: int = 60_000
    probe_timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        for name in ("failures", "window_ms", "cool_down_ms", "calm_ms", "probe_timeout_ms"):
            if getattr(self, name) < 1:
                raise BadSettings(name, "at least 1", getattr(self, name))
        if not 0 <= self.failure_share <= 1:
            raise BadSettings("failure_share", "0 to 1", self.failure_share)
        if self.longest_cool_down_ms < self.cool_down_ms:
            raise BadSettings(
                "longest_cool_down_ms", "at least cool_down_ms", self.longest_cool_down_ms
            )


class CircuitBreaker:
    """The breaker of one node. Closed at first."""

    def __init__(self, rules: BreakerRules | None = None) -> None:
        self.rules = rules or BreakerRules()
        self._outcomes: deque[tuple[int, bool]] = deque(maxlen=OUTCOMES_KEPT)  # (when_ns, ok)
        self._open_until_ns: int | None = None  # None: closed
        self._probe_since_ns: int | None = None
        self._cool_down_ms = 0  # the newest one's length
        self._closed_at_ns = 0

    def state(self, now_ns: int) -> BreakerState:
        if self._open_until_ns is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now_ns < self._open_until_ns else BreakerState.HALF_OPEN

    def retry_in_ms(self, now_ns: int) -> int:
        """Milliseconds until it is half-open, rounded up; 0 if it is that or closed."""
        if self._open_until_ns is None:
            return 0
        return max(0, -((now_ns - self._open_until_ns) // NS_PER_MS))

    def probe(self, now_ns: int) -> bool:
        """Whether the caller may try the node now, although it is not closed. Of all who ask while
        it is half-open, one is told so; it reports by `succeeded` or `failed`."""
        if self.state(now_ns) is not BreakerState.HALF_OPEN:
            return False
        since_ns = self._probe_since_ns
        if since_ns is not None and now_ns - since_ns < self.rules.probe_timeout_ms * NS_PER_MS:
            return False
        self._probe_since_ns = now_ns
        return True

    def succeeded(self, now_ns: int) -> None:
        """A piece of work, or the probe, succeeded. While open it changes nothing: work that was
        begun before the breaker opened says little about the node."""
        match self.state(now_ns):
            case BreakerState.CLOSED:
                self._outcomes.append((now_ns, True))
            case BreakerState.HALF_OPEN if self._probe_since_ns is not None:
                self.close(now_ns)
            case _:
                pass

    def failed(self, now_ns: int) -> bool:
        """A piece of work, or the probe, failed. Returns whether this opened the breaker."""
        match self.state(now_ns):
            case BreakerState.CLOSED:
                self._outcomes.append((now_ns, False))
                if self._too_many(now_ns):
                    self.trip(now_ns)
                    return True
            case BreakerState.HALF_OPEN if self._probe_since_ns is not None:
                self.trip(now_ns)
                return True
            case _:
                pass
        return False

    def trip(self, now_ns: int) -> None:
        """Open it now, whatever there was before; if it is open, its cool-down goes on."""
        if self.state(now_ns) is BreakerState.OPEN:
            return
        rules = self.rules
        calm_ns = now_ns - self._closed_at_ns
        closed = self._open_until_ns is None
        if not self._cool_down_ms or (closed and calm_ns >= rules.calm_ms * NS_PER_MS):
            self._cool_down_ms = rules.cool_down_ms
        else:
            self._cool_down_ms = min(2 * self._cool_down_ms, rules.longest_cool_down_ms)
        self._open_until_ns = now_ns + self._cool_down_ms * NS_PER_MS
        self._probe_since_ns = None
        self._outcomes.clear()

    def close(self, now_ns: int) -> None:
        """Close it now: somebody knows that the node works."""
        if self._open_until_ns is not None:
            self._closed_at_ns = now_ns
        self._open_until_ns = self._probe_since_ns = None
        self._outcomes.clear()

    def _too_many(self, now_ns: int) -> bool:
        oldest_ns = now_ns - self.rules.window_ms * NS_PER_MS
        while self._outcomes and self._outcomes[0][0] <= oldest_ns:
            self._outcomes.popleft()
        failures = sum(not ok for _, ok in self._outcomes)
        enough = failures >= self.rules.failures
        return enough and failures >= self.rules.failure_share * len(self._outcomes)
