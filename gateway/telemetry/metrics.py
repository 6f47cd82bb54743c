"""The gateway's Prometheus metrics: one registry per `Metrics`, nothing global.

Numbers that belong to a process (open sessions, tokens, errors) are here; what belongs to one
turn travels in its budget. Label values come from fixed sets, so the output stays small; error
codes are the exception and are capped.
"""

from __future__ import annotations

from collections import defaultdict

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from headstart.engine.api import Stats, Usage
from headstart.gateway.telemetry.latency import DEFAULT_LATENCY_BUDGET_MS, ChunkBudget, TurnBudget

# As shares of the budget: the last finite bucket ends at the budget itself, so what lies in +Inf
# is over it.
BUCKET_SHARES = (0.0125, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.625, 0.75, 0.875, 1.0)
CHUNK_BUCKETS_MS = (10.0, 20.0, 35.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0, 400.0, 500.0, 1000.0)
MAX_ERROR_CODES = 64  # further codes are counted as "other"


class Metrics:
    """Everything `/metrics` shows. `latency_budget_ms` sets the upper end of the histograms."""

    def __init__(self, latency_budget_ms: int = DEFAULT_LATENCY_BUDGET_MS) -> None:
        self.registry = CollectorRegistry()
        self._error_codes: set[str] = set()
        buckets_ms = tuple(share * latency_budget_ms for share in BUCKET_SHARES)
        self._make_sessions()
        self._make_turns(buckets_ms)
        self._make_chunks()

    def _make_sessions(self) -> None:
        r = self.registry
        self.sessions_open = Gauge("headstart_sessions_open", "Sessions open now", registry=r)
        self.sessions = Counter("headstart_sessions", "Sessions opened", registry=r)
        self.errors = Counter("headstart_errors", "Errors sent, by code", ["code"], registry=r)
        self.engine_up = Gauge("headstart_engine_up", "1 while the engine takes work", registry=r)
        self.engine_restarts = Counter(
            "headstart_engine_restarts", "Times the engine was started again", registry=r
        )
        self.kv_blocks_used = Gauge(
            "headstart_kv_blocks_used", "Blocks of the paged KV cache in use", registry=r
        )
        self.kv_blocks = Gauge("headstart_kv_blocks", "Blocks of the KV cache in all", registry=r)
        self.kv_level = Gauge(
            "headstart_kv_level",
            "0 calm, 1 fewer frames, 2 idle sessions offloaded, 3 new sessions refused",
            registry=r,
        )
        self.sessions_offloaded = Gauge(
            "headstart_sessions_offloaded", "Idle sessions whose K/V are in host memory", registry=r
        )
        self.offloaded_bytes = Gauge(
            "headstart_kv_offloaded_bytes", "Host memory that those take", registry=r
        )
        self.engine_rss = Gauge(
            "headstart_engine_rss_bytes", "Memory of the engine's process", registry=r
        )

    def _make_turns(self, buckets_ms: tuple[float, ...]) -> None:
        r = self.registry
        self.turns = Counter(
            "headstart_turns", "Turns answered, by their end", ["reason"], registry=r
        )
        self.over_budget = Counter(
            "headstart_turns_over_budget", "Turns slower than the latency budget", registry=r
        )
        self.ttft_ms = Histogram(
            "headstart_ttft_ms",
            "From the turn's anchor to its first token sent, turns fed in real time",
            ["anchor"],
            buckets=buckets_ms,
            registry=r,
        )
        self.stage_ms = Histogram(
            "headstart_turn_stage_ms",
            "A stage's share of that, turns fed in real time",
            ["stage"],
            buckets=buckets_ms,
            registry=r,
        )
        self.tokens = Counter("headstart_tokens", "Tokens, by kind", ["kind"], registry=r)

    def _make_chunks(self) -> None:
        r = self.registry
        self.chunk_latency_ms = Histogram(
            "headstart_chunk_latency_ms",
            "From a chunk's receipt to its words in the KV cache",
            buckets=CHUNK_BUCKETS_MS,
            registry=r,
        )
        self.chunk_overruns = Counter(
            "headstart_chunk_overruns", "Chunks that took longer than they last", registry=r
        )
        self.audio_ms = Counter(
            "headstart_audio_ms", "Audio received, by what became of it", ["fate"], registry=r
        )
        self._audio_ms: defaultdict[str, float] = defaultdict(float)
        """By fate, since it was shown last: a counter's lock would cost each packet 3 us."""

        self.frames = Counter(
            "headstart_frames", "Camera frames, by what became of them", ["fate"], registry=r
        )

    def session_opened(self) -> None:
        self.sessions.inc()
        self.sessions_open.inc()

    def session_closed(self) -> None:
        self.sessions_open.dec()

    def turn_finished(self, reason: str, usage: Usage) -> None:
        """`reason`: an `headstart.engine.api.FinishReason`."""
        self.turns.labels(reason).inc()
        counts = {
            "input_text": usage.input_text,
            "input_audio": usage.input_audio,
            "input_image": usage.input_image,
            "cached": usage.cached,
            "output": usage.output,
            "speculated": usage.speculated,
            "wasted": usage.wasted,
        }
        for kind, count in counts.items():
            self.tokens.labels(kind).inc(count)

    def turn_budget(self, budget: TurnBudget) -> None:
        """Files fed faster than real time would make the histograms meaningless: left out."""
        if not budget.realtime:
            return
        self.ttft_ms.labels(budget.anchor.value).observe(budget.total_ms)
        if budget.over_budget:
            self.over_budget.inc()
        for stage, ms in budget.stages_ms.items():
            if ms is not None:
                self.stage_ms.labels(stage).observe(ms)

    def chunk(self, chunk: ChunkBudget) -> None:
        self.chunk_latency_ms.observe(chunk.latency_ms)
        if chunk.overrun:
            self.chunk_overruns.inc()

    def audio(self, fate: str, ms: float) -> None:
        """`fate`: received, inserted (silence for packets that never came), dropped or late."""
        self._audio_ms[fate] += ms

    def frame(self, fate: str) -> None:
        """`fate`: kept, too_soon, unchanged, enough, replaced (a newer one came) or broken."""
        self.frames.labels(fate).inc()

    def engine(self, stats: Stats) -> None:
        """The engine's newest heartbeat."""
        self.kv_blocks_used.set(stats.kv_blocks_used)
        self.kv_blocks.set(stats.kv_blocks_total)
        self.kv_level.set(stats.level)
        self.sessions_offloaded.set(stats.sessions_offloaded)
        self.offloaded_bytes.set(stats.offloaded_bytes)
        self.engine_rss.set(stats.rss_bytes)

    def error(self, code: str) -> None:
        if code not in self._error_codes and len(self._error_codes) >= MAX_ERROR_CODES:
            code = "other"
        self._error_codes.add(code)
        self.errors.labels(code).inc()

    def totals(self) -> dict[str, dict[str, float]]:
        """Sound and frames since the start, by what became of them."""
        self._count_audio()
        return {"audio_ms": by_label(self.audio_ms), "frames": by_label(self.frames)}

    def _count_audio(self) -> None:
        while self._audio_ms:
            fate, ms = self._audio_ms.popitem()
            self.audio_ms.labels(fate).inc(ms)

    def render(self) -> bytes:
        """The text exposition."""
        self._count_audio()
        return generate_latest(self.registry)


def by_label(counter: Counter) -> dict[str, float]:
    """A counter's values by its only label's."""
    return {
        next(iter(sample.labels.values())): round(sample.value, 3)
        for metric in counter.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    }
