"""The names that `/metrics` had before base units, for one release more (`legacy_metrics`).

Milliseconds, and histograms whose buckets end at the latency budget.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from headstart.gateway.telemetry.engine_metrics import EngineCollector
from headstart.gateway.telemetry.latency import TurnBudget

# As shares of the budget: the last finite bucket ends at the budget itself.
BUCKET_SHARES = (0.0125, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.625, 0.75, 0.875, 1.0)
CHUNK_BUCKETS_MS = (10.0, 20.0, 35.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0, 400.0, 500.0, 1000.0)

SCALED = {
    "headstart_audio_ms": "headstart_audio_seconds",
    "headstart_rtp_audio_ms": "headstart_rtp_audio_seconds",
    "headstart_rtp_audio_dropped_ms": "headstart_rtp_audio_dropped_seconds",
}
"""Old counter in ms -> the one in seconds."""


class LegacyMetrics:
    """Observes what the new histograms do, and shows the rest under its old name."""

    def __init__(
        self, registry: CollectorRegistry, latency_budget_ms: float, engine: EngineCollector
    ) -> None:
        buckets_ms = tuple(share * latency_budget_ms for share in BUCKET_SHARES)
        old = "Old name of headstart_"
        self.ttft_ms = Histogram(
            "headstart_ttft_ms",
            f"{old}turn_first_token_seconds",
            ["anchor"],
            buckets=buckets_ms,
            registry=registry,
        )
        self.stage_ms = Histogram(
            "headstart_turn_stage_ms",
            f"{old}turn_stage_seconds",
            ["stage"],
            buckets=buckets_ms,
            registry=registry,
        )
        self.chunk_latency_ms = Histogram(
            "headstart_chunk_latency_ms",
            f"{old}chunk_latency_seconds",
            buckets=CHUNK_BUCKETS_MS,
            registry=registry,
        )
        registry.register(_Scaled(registry))
        registry.register(_Blocks(engine))

    def turn(self, budget: TurnBudget) -> None:
        """A turn that the new histograms have, too."""
        self.ttft_ms.labels(budget.anchor.value).observe(budget.total_ms)
        for stage, ms in budget.stages_ms.items():
            if ms is not None:
                self.stage_ms.labels(stage).observe(ms)


class _Scaled(Collector):
    """Counters of seconds, in ms."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def describe(self) -> Iterable[Metric]:
        return [CounterMetricFamily(old, f"Old name of {new}") for old, new in SCALED.items()]

    def collect(self) -> Iterable[Metric]:
        for old, new in SCALED.items():
            for family in self._registry.restricted_registry([f"{new}_total"]).collect():
                scaled = Metric(old, f"Old name of {new}", "counter")
                for sample in family.samples:
                    if sample.name == f"{new}_total":
                        scaled.add_sample(f"{old}_total", sample.labels, sample.value * 1000)
                yield scaled


class _Blocks(Collector):
    """Blocks of the KV cache in use; their total is with the new name (`EngineCollector`)."""

    def __init__(self, engine: EngineCollector) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        stats = self._engine.stats
        used = GaugeMetricFamily("headstart_kv_blocks_used", "Old name of headstart_kv_blocks")
        if stats is not None:
            used.add_metric([], stats.kv_blocks_used)
        yield used
