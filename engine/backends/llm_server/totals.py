"""What an LLM server was asked, and what became of it: counters since the engine started."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from headstart.engine import api


class Kind(StrEnum):
    """Of a request: a prompt sent ahead, an answer, or whether the message is over."""

    WARM_UP = "warm_up"
    ANSWER = "answer"
    END_PROBE = "end_probe"


@dataclass(slots=True)
class Totals:
    """Counters of one server, or of all; `api.LlmServerTotals` explains the first seven, and
    `api.LlmServerStatus` the others."""

    requests: Counter[Kind] = field(default_factory=Counter)
    cancelled: Counter[Kind] = field(default_factory=Counter)
    computed: Counter[Kind] = field(default_factory=Counter)
    cached: Counter[Kind] = field(default_factory=Counter)
    unknown: Counter[Kind] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    faults: int = 0
    sessions_left: int = 0

    def plus(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, n) + getattr(other, n) for n in self.__slots__))

    def prompt(self, kind: Kind, num_tokens: int, cached: int | None) -> None:
        """Count a prompt; `cached` is the server's count, None if it did not tell."""
        if cached is None:
            self.unknown[kind] += num_tokens
        else:
            self.cached[kind] += min(cached, num_tokens)
            self.computed[kind] += max(0, num_tokens - cached)

    def report(self) -> api.LlmServerTotals:
        fates = {"computed": self.computed, "cached": self.cached, "unknown": self.unknown}
        return api.LlmServerTotals(
            requests={kind.value: count for kind, count in self.requests.items()},
            cancelled={kind.value: count for kind, count in self.cancelled.items()},
            prompt_tokens={
                kind.value: {fate: counts[kind] for fate, counts in fates.items() if counts[kind]}
                for kind in self.requests
            },
            failures=dict(self.failures),
            retries=self.retries,
        )
