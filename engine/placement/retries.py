"""Bounded retries: how often, how late, and out of which budget work is sent again.

A budget keeps retries a small share of the traffic, so that a node in trouble is not buried under
them. Source: the retry budget of Finagle and the retry throttling of gRPC (proposal A6).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from headstart.engine.errors import BadSettings


@dataclass(frozen=True, slots=True)
class RetryRules:
    """Raises `BadSettings` for a value out of range.

    Attributes:
        attempts: the most times that one piece of work is sent, the first included.
        share: retries per first attempt that the budget earns.
        most: retries that the budget holds at most, and at the start.
        delay_ms, longest_delay_ms: wait before the first retry; each one that follows is twice as
            long, up to the longest.
    """

    attempts: int = 3
    share: float = 0.2
    most: int = 10
    delay_ms: int = 50
    longest_delay_ms: int = 1_000

    def __post_init__(self) -> None:
        for name in ("attempts", "most", "delay_ms"):
            if getattr(self, name) < 1:
                raise BadSettings(name, "at least 1", getattr(self, name))
        if not 0 <= self.share <= 1:
            raise BadSettings("share", "0 to 1", self.share)
        if self.longest_delay_ms < self.delay_ms:
            raise BadSettings("longest_delay_ms", "at least delay_ms", self.longest_delay_ms)


class RetryBudget:
    """The retries of all work that shares one budget, such as all sessions of a process."""

    def __init__(self, rules: RetryRules | None = None) -> None:
        self.rules = rules or RetryRules()
        self._left = float(self.rules.most)

    def first(self) -> None:
        """A piece of work is sent for the first time."""
        self._left = min(self._left + self.rules.share, float(self.rules.most))

    def retry(self, key: str, attempts: int) -> int | None:
        """Milliseconds to wait before the work `key`, which was sent `attempts` times, is sent
        again; None if it must not be. The wait is 50 to 100 % of its full length, by `key`."""
        assert attempts >= 1, "the first attempt is no retry"
        # Earned in steps of `share`, whose sums round.
        if attempts >= self.rules.attempts or self._left < 1 - 1e-9:
            return None
        self._left -= 1
        full_ms = min(self.rules.delay_ms << min(attempts - 1, 30), self.rules.longest_delay_ms)
        digest = blake2b(f"{attempts}:{key}".encode(), digest_size=4).digest()
        return round(full_ms * (1 + int.from_bytes(digest, "big") / 0xFFFFFFFF) / 2)
