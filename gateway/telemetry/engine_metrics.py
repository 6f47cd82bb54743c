"""What the engine's newest heartbeat adds to `/metrics`. Its counters begin anew with the engine,
as Prometheus expects of a process that was started again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import Metric
from prometheus_client.registry import Collector

from headstart.engine.api import Counts, Stats
from headstart.gateway.telemetry import names
from headstart.gateway.telemetry.collectors import cumulative

GAUGES = (
    (names.KV_LEVEL, "level"),
    (names.SESSIONS_OFFLOADED, "sessions_offloaded"),
    (names.KV_OFFLOADED_BYTES, "offloaded_bytes"),
    (names.ENGINE_RSS, "rss_bytes"),
)
COUNTERS = (
    (names.KV_EVICTED, "evicted_tokens"),
    (names.KV_OFFLOADS, "offloads"),
    (names.KV_RETURNS, "returns"),
)
"""With the field of `Stats` that each of them shows."""


class EngineCollector(Collector):
    """`stats`: the newest heartbeat; without one the families are there, and empty. `legacy`: the
    blocks have a total without a label, as they had before they had states."""

    def __init__(self, *, legacy: bool = False) -> None:
        self._legacy = legacy
        self.stats: Stats | None = None

    def collect(self) -> Iterable[Metric]:
        yield from self._gauges()
        yield from self._counters()
        yield from self._steps()
        yield from self._llm_server()

    def _gauges(self) -> Iterable[Metric]:
        stats = self.stats
        blocks, tokens = names.KV_BLOCKS.values(), names.KV_TOKENS.values()
        if stats is not None:
            free = stats.kv_blocks_total - stats.kv_blocks_used - stats.kv_blocks_cached
            blocks.add_metric(["used"], stats.kv_blocks_used)
            blocks.add_metric(["cached"], stats.kv_blocks_cached)
            blocks.add_metric(["free"], max(0, free))
            if self._legacy:
                blocks.add_metric([], stats.kv_blocks_total)
            for modality, count in stats.kv_tokens.items():
                tokens.add_metric([modality], count)
        yield blocks
        yield tokens
        for family, field in GAUGES:
            gauge = family.values()
            if stats is not None:
                gauge.add_metric([], getattr(stats, field))
            yield gauge

    def _counters(self) -> Iterable[Metric]:
        stats = self.stats
        speculated = names.SPECULATED.counts()
        if stats is not None:
            speculated.add_metric(["kept"], stats.speculated_kept)
            speculated.add_metric(["wasted"], stats.speculated_wasted)
        yield speculated
        for family, field in COUNTERS:
            counter = family.counts()
            if stats is not None:
                counter.add_metric([], getattr(stats, field))
            yield counter

    def _steps(self) -> Iterable[Metric]:
        stats = self.stats
        yield _histogram(names.ENGINE_STEP, {} if stats is None else stats.step_totals.seconds)
        yield _histogram(
            names.ENGINE_STEP_TOKENS, {} if stats is None else stats.step_totals.tokens
        )
        sessions = None if stats is None else stats.step_totals.sessions
        yield _histogram(names.ENGINE_STEP_SESSIONS, {} if sessions is None else {"": sessions})

    def _llm_server(self) -> Iterable[Metric]:
        totals = None if self.stats is None else self.stats.llm_server
        yield _counter(names.LLM_REQUESTS, {} if totals is None else totals.requests)
        yield _counter(names.LLM_CANCELLED, {} if totals is None else totals.cancelled)
        tokens, retries = names.LLM_PROMPT_TOKENS.counts(), names.LLM_RETRIES.counts()
        if totals is not None:
            for kind, fates in totals.prompt_tokens.items():
                for fate, count in fates.items():
                    tokens.add_metric([kind, fate], count)
            retries.add_metric([], totals.retries)
        yield tokens
        yield retries
        yield _counter(names.LLM_FAILURES, {} if totals is None else totals.failures)


def _counter(family: names.Family, by_label: Mapping[str, int]) -> Metric:
    metric = family.counts()
    for label, count in by_label.items():
        metric.add_metric([label], count)
    return metric


def _histogram(family: names.Family, by_label: dict[str, Counts]) -> Metric:
    """Counts of another build of the engine, with other buckets, are left out."""
    metric = family.distributions()
    for label, counts in by_label.items():
        if len(counts.buckets) == len(family.buckets) + 1:
            labels = [label] if family.labels else []
            metric.add_metric(labels, cumulative(family.buckets, counts.buckets), counts.sum)
    return metric
