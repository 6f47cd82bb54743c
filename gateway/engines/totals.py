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
        self._seen: set[str] = set()  # two names at most: whether there was more than one engine

    def add(self, engine: str, stats: api.Stats) -> None:
        """An engine's heartbeat."""
        before = self._newest.get(engine)
        if before is not None and before.incarnation != stats.incarnation:
            self._keep(before)
        self._newest[engine] = stats
        if len(self._seen) < 2:
            self._seen.add(engine)

    def forget(self, engine: str) -> None:
        """An engine that will not come back."""
        before = self._newest.pop(engine, None)
        if before is not None:
            self._keep(before)

    def _keep(self, stats: api.Stats) -> None:
        self._ended = [summed([*self._ended, counted(stats)])]

    def of(self, newest: Mapping[str, api.Stats]) -> api.Stats | None:
        """The sum of these, by engine; None: there are none."""
        if len(newest) == 1 and len(self._seen) <= 1:
            return next(iter(newest.values()))
        if not newest:
            return None
        live = summed(newest.values())
        whole = summed([*self._ended, live])
        counters = {name: getattr(whole, name) for name in COUNTERS}
        return msgspec.structs.replace(
            live, **counters, step_totals=whole.step_totals, llm_server=whole.llm_server
        )


def counted(stats: api.Stats) -> api.Stats:
    """What an engine that is gone has counted; it holds nothing any more."""
    return msgspec.structs.replace(
        stats,
        **dict.fromkeys(GAUGES, 0),
        kv_tokens={},
        level=api.Level.CALM,
        recent_steps=api.StepStats(),
        llm_servers=[],
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
        llm_servers=_llm_servers(status for part in every for status in part.llm_servers),
        llm_server=_llm_server([part.llm_server for part in every if part.llm_server is not None]),
    )


def _steps(parts: list[api.StepStats]) -> api.StepStats:
    busiest = max(parts, key=lambda part: part.count)
    summed_names = ("count", "busy_ms", "prefill_tokens", "decode_tokens", "sessions")
    added = {name: sum(getattr(part, name) for part in parts) for name in summed_names}
    return msgspec.structs.replace(
        busiest,
        **added,
        p95_ms=_highest(part.p95_ms for part in parts),
        max_ms=_highest(part.max_ms for part in parts),
        queue_max=max(part.queue_max for part in parts),
    )


def _highest(values: Iterable[float | None]) -> float | None:
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


SERVER_STATES = ("ready", "draining", "down")
"""Of an LLM server that several engines use, the state is the first of these that one sees."""


def _llm_servers(parts: Iterable[api.LlmServerStatus]) -> list[api.LlmServerStatus]:
    """By URL: what engines count is added; of what the server tells, the highest."""
    by_url: dict[str, api.LlmServerStatus] = {}
    for part in parts:
        known = by_url.get(part.url)
        by_url[part.url] = part if known is None else _both(known, part)
    return list(by_url.values())


def _both(one: api.LlmServerStatus, other: api.LlmServerStatus) -> api.LlmServerStatus:
    order = {state: rank for rank, state in enumerate(SERVER_STATES)}
    best = min(one, other, key=lambda status: order.get(status.state, len(order)))
    names = ("sessions", "in_flight", "answers", "warm_ups", "retries", "faults", "sessions_left")
    added = {name: getattr(one, name) + getattr(other, name) for name in names}
    waiting = [each.waiting for each in (one, other) if each.waiting is not None]
    kv_share = _highest([one.kv_share, other.kv_share])
    return msgspec.structs.replace(
        best, **added, waiting=max(waiting, default=None), kv_share=kv_share
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
