"""What several engines count, added up to one `Stats`.

Counters of an engine begin anew when it is started again. A sum over several would then fall by a
part, which Prometheus takes for a restart of the whole and counts the rest twice. So what an engine
had counted before stays in the sum. With one engine the sum is what that one says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from headstart.engine import api

COUNTERS = (
    *("steps", "offloads", "returns", "sessions_refused", "evicted_tokens"),
    *("speculated_kept", "speculated_wasted"),
)
GAUGES = (
    *("sessions", "kv_blocks_used", "kv_blocks_total", "rss_bytes", "pending_prefill_tokens"),
    *("kv_blocks_cached", "kv_blocks_shared", "sessions_offloaded", "offloaded_bytes"),
)


class Totals:
    """Of all engines. On the loop."""

    def __init__(self) -> None:
        self._newest: dict[str, api.Stats] = {}
        self._ended: list[api.Stats] = []  # what earlier incarnations had counted, as one `Stats`
        self._seen: set[str] = set()

    def add(self, engine: str, stats: api.Stats) -> None:
        """An engine's heartbeat."""
        before = self._newest.get(engine)
        if before is not None and before.incarnation != stats.incarnation:
            self._keep(before)
        self._newest[engine] = stats
        self._seen.add(engine)

    def forget(self, engine: str) -> None:
        """An engine that will not come back."""
        before = self._newest.pop(engine, None)
        if before is not None:
            self._keep(before)

    def _keep(self, stats: api.Stats) -> None:
        ended = msgspec.structs.replace(stats, **dict.fromkeys(GAUGES, 0), kv_tokens={})
        self._ended = [summed([*self._ended, ended])]

    def of(self, newest: Mapping[str, api.Stats]) -> api.Stats | None:
        """The sum of these, by engine; None: there are none."""
        if len(newest) == 1 and len(self._seen) <= 1:
            return next(iter(newest.values()))
        if not newest:
            return None
        live = summed(newest.values())
        counted = summed([*self._ended, live])
        counters = {name: getattr(counted, name) for name in COUNTERS}
        return msgspec.structs.replace(
            live, **counters, step_totals=counted.step_totals, llm_server=counted.llm_server
        )


def summed(parts: Iterable[api.Stats]) -> api.Stats:
    """At least one. `level` is the highest; of durations in `recent_steps` the longest, the median
    of that engine which made most steps."""
    every = list(parts)
    added = {name: sum(getattr(part, name) for part in every) for name in (*COUNTERS, *GAUGES)}
    tokens: dict[str, int] = {}
    for part in every:
        for modality, count in part.kv_tokens.items():
            tokens[modality] = tokens.get(modality, 0) + count
    return msgspec.structs.replace(
        every[-1],
        **added,
        kv_tokens=tokens,
        level=max(part.level for part in every),
        recent_steps=_steps([part.recent_steps for part in every]),
        step_totals=_totals([part.step_totals for part in every]),
        llm_servers=[server for part in every for server in part.llm_servers],
        llm_server=_llm_server([part.llm_server for part in every if part.llm_server is not None]),
    )


def _steps(parts: list[api.StepStats]) -> api.StepStats:
    busiest = max(parts, key=lambda part: part.count)
    summed_names = ("count", "busy_ms", "prefill_tokens", "decode_tokens", "sessions")
    added = {name: sum(getattr(part, name) for part in parts) for name in summed_names}
    return msgspec.structs.replace(
        busiest,
        **added,
        p95_ms=_longest(part.p95_ms for part in parts),
        max_ms=_longest(part.max_ms for part in parts),
        queue_max=max(part.queue_max for part in parts),
    )


def _longest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _totals(parts: list[api.StepTotals]) -> api.StepTotals:
    seconds: dict[str, api.Counts] = {}
    tokens: dict[str, api.Counts] = {}
    sessions: api.Counts | None = None
    for part in parts:
        _merge(seconds, part.seconds)
        _merge(tokens, part.tokens)
        sessions = part.sessions if sessions is None else _plus(sessions, part.sessions)
    return api.StepTotals(seconds, tokens, sessions)


def _merge(into: dict[str, api.Counts], more: Mapping[str, api.Counts]) -> None:
    for label, counts in more.items():
        into[label] = _plus(into[label], counts) if label in into else counts


def _llm_server(parts: list[api.LlmServerTotals]) -> api.LlmServerTotals | None:
    if not parts:
        return None
    tokens: dict[str, dict[str, int]] = {}
    for part in parts:
        for kind, counts in part.prompt_tokens.items():
            tokens[kind] = _added([tokens.get(kind, {}), counts])
    return api.LlmServerTotals(
        requests=_added(part.requests for part in parts),
        cancelled=_added(part.cancelled for part in parts),
        prompt_tokens=tokens,
        failures=_added(part.failures for part in parts),
        retries=sum(part.retries for part in parts),
    )


def _added(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    whole: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            whole[name] = whole.get(name, 0) + count
    return whole


def _plus(one: api.Counts, other: api.Counts | None) -> api.Counts:
    """Counts of another build of the engine, with other buckets, are left out."""
    if other is None or len(one.buckets) != len(other.buckets):
        return one
    buckets = [a + b for a, b in zip(one.buckets, other.buckets, strict=True)]
    return api.Counts(buckets, one.sum + other.sum)
