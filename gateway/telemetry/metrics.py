"""The gateway's Prometheus metrics: one registry per `Metrics`, nothing global.

Numbers that belong to a process (open sessions, tokens, errors) are here; what belongs to one
turn travels in its record, and is observed when the record is told. Label values come from fixed
sets, so the output stays small; error codes are the exception and are capped. A histogram of turns
has exemplars for who asks for OpenMetrics: the turn's id, which the dashboard opens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from headstart.engine.api import Chunk, Stats, Usage
from headstart.gateway.telemetry import names
from headstart.gateway.telemetry.engine_metrics import EngineCollector
from headstart.gateway.telemetry.latency import (
    DEFAULT_LATENCY_BUDGET_MS,
    Anchor,
    ChunkBudget,
    TurnBudget,
    hidden_work_ns,
)
from headstart.gateway.telemetry.legacy_metrics import LegacyMetrics
from headstart.gateway.telemetry.observer import Observer
from headstart.gateway.telemetry.turn_record import TurnRecord, usage_to_wire

MAX_ERROR_CODES = 64  # further codes are counted as "other"
OPEN_TURNS_MAX = 4096
"""Newest turns of which more may be learnt. What is learnt of an older one is not counted."""


@dataclass(frozen=True, slots=True)
class MetricsPage(Collector):
    """All values of one instant. Reading them takes the loop 2 ms; `render` takes 3 to 10 and may
    run on any thread."""

    families: tuple[Metric, ...]

    def collect(self) -> Iterable[Metric]:
        return self.families

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The page and its content type: OpenMetrics for an `Accept` header that asks for it, else
        Prometheus's text format, which has no exemplars."""
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type


class Metrics(Observer):
    """Everything `/metrics` shows. `legacy`: under the old names as well, whose histograms end at
    `latency_budget_ms`."""

    def __init__(
        self, latency_budget_ms: int = DEFAULT_LATENCY_BUDGET_MS, *, legacy: bool = False
    ) -> None:
        self.registry = CollectorRegistry()
        self._error_codes: set[str] = set()
        self._open_turns: dict[str, set[str]] = {}
        """By response, what was counted of it that may come with a later revision."""
        self._make_sessions()
        self._make_turns()
        self._make_chunks()
        self._engine = EngineCollector(legacy=legacy)
        self.registry.register(self._engine)
        self._legacy = (
            LegacyMetrics(self.registry, latency_budget_ms, self._engine) if legacy else None
        )

    def _make_sessions(self) -> None:
        r = self.registry
        self.sessions_open = names.SESSIONS_OPEN.gauge(r)
        self.sessions = names.SESSIONS.counter(r)
        self.errors = names.ERRORS.counter(r)
        self.engine_up = names.ENGINE_UP.gauge(r)
        self.engine_restarts = names.ENGINE_RESTARTS.counter(r)

    def _make_turns(self) -> None:
        r = self.registry
        self.turns = names.TURNS.counter(r)
        self.over_budget = names.OVER_BUDGET.counter(r)
        self.first_token_s = names.FIRST_TOKEN.histogram(r)
        self.first_sound_s = names.FIRST_SOUND.histogram(r)
        for anchor in Anchor:  # a rate counts from the first 0 that is seen
            self.first_token_s.labels(anchor.value)
            self.first_sound_s.labels(anchor.value)
        self.stage_s = names.TURN_STAGE.histogram(r)
        self.hidden_s = names.HIDDEN_WORK.histogram(r)
        self.interruptions = names.INTERRUPTIONS.counter(r)
        self.revocations = names.REVOCATIONS.counter(r)
        self.revoked_sound_s = names.REVOKED_SOUND.counter(r)
        self.tokens = names.TOKENS.counter(r)

    def _make_chunks(self) -> None:
        r = self.registry
        self.chunk_latency_s = names.CHUNK_LATENCY.histogram(r)
        self.chunk_headroom = names.CHUNK_HEADROOM.histogram(r)
        self.chunk_overruns = names.CHUNK_OVERRUNS.counter(r)
        self.rolled_back = names.ROLLED_BACK.counter(r)
        self.audio_s = names.AUDIO.counter(r)
        self._audio_ms: defaultdict[str, float] = defaultdict(float)
        """By fate, since it was shown last: a counter's lock would cost each packet 3 us."""

        self.frames = names.FRAMES.counter(r)
        self.frame_rungs = names.FRAME_RUNGS.counter(r)

    def session_opened(self) -> None:
        self.sessions.inc()
        self.sessions_open.inc()

    def session_closed(self) -> None:
        self.sessions_open.dec()

    def turn_ended(self, reason: str) -> None:
        """One of which the engine has told nothing, or will not."""
        self.turns.labels(reason).inc()

    def turn_finished(self, reason: str, usage: Usage) -> None:
        """`reason`: an `headstart.engine.api.FinishReason`."""
        self.turn_ended(reason)
        for kind, count in usage_to_wire(usage).items():
            self.tokens.labels(kind).inc(count)

    # --- what sessions tell ----------------------------------------------------------------------

    def turn(self, record: TurnRecord) -> None:
        """As on the dashboard, turns that were fed faster than real time, were interrupted or taken
        back, or could not be measured are left out of histograms. A turn that is interrupted or
        taken back after its record was told has been counted by then."""
        if record.revision == 1:
            counted = self._open_turns[record.response_id] = set()
            if len(self._open_turns) > OPEN_TURNS_MAX:
                del self._open_turns[next(iter(self._open_turns))]
        elif (known := self._open_turns.get(record.response_id)) is not None:
            counted = known
        else:
            return
        self._count_interruption(record, counted)
        budget = record.budget
        if isinstance(budget, TurnBudget) and budget.realtime and not record.interrupted:
            if record.revision == 1:
                self._observe_wait(record, budget)
            self._observe_sound(record, budget, counted)

    def _count_interruption(self, record: TurnRecord, counted: set[str]) -> None:
        if record.interrupted and "interrupted" not in counted:
            counted.add("interrupted")
            if record.revoked_ms is not None:
                self.revocations.inc()
                self.revoked_sound_s.inc(record.revoked_ms / 1000)
                return
            running = record.revision == 1 and record.reason == "cancelled"
            self.interruptions.labels("answer" if running else "playout").inc()

    def _observe_wait(self, record: TurnRecord, budget: TurnBudget) -> None:
        exemplar = {"turn": record.response_id}
        anchor = budget.anchor.value
        self.first_token_s.labels(anchor).observe(budget.total_ms / 1000, exemplar)
        if budget.over_budget:
            self.over_budget.inc(exemplar=exemplar)
        for stage, ms in budget.stages_ms.items():
            if ms is not None:
                self.stage_s.labels(stage).observe(ms / 1000, exemplar)
        for stage, ns in hidden_work_ns(record.stamps).items():
            self.hidden_s.labels(stage).observe(ns / 1e9, exemplar)
        if self._legacy is not None:
            self._legacy.turn(budget)

    def _observe_sound(self, record: TurnRecord, budget: TurnBudget, counted: set[str]) -> None:
        exemplar = {"turn": record.response_id}
        stages_ms = record.stages_ms
        for stage in ("voice", "playout"):
            ms = stages_ms[stage]
            if ms is None or stage in counted:
                continue
            counted.add(stage)
            self.stage_s.labels(stage).observe(ms / 1000, exemplar)
            if stage == "voice":
                total_ms = budget.total_ms + ms
                self.first_sound_s.labels(budget.anchor.value).observe(total_ms / 1000, exemplar)

    def chunk(self, chunk: Chunk, budget: ChunkBudget) -> None:
        self.chunk_latency_s.observe(budget.latency_ms / 1000)
        self.chunk_headroom.observe(max(0.0, budget.headroom_percent) / 100)
        self.rolled_back.inc(max(0, chunk.rolled_back_tokens))
        if budget.overrun:
            self.chunk_overruns.inc()
        if self._legacy is not None:
            self._legacy.chunk_latency_ms.observe(budget.latency_ms)

    def error(
        self,
        code: str,
        message: str = "",
        session_id: str | None = None,
        response_id: str | None = None,
    ) -> None:
        if code not in self._error_codes and len(self._error_codes) >= MAX_ERROR_CODES:
            code = "other"
        self._error_codes.add(code)
        self.errors.labels(code).inc(exemplar={"turn": response_id} if response_id else None)

    # --- others ----------------------------------------------------------------------------------

    def audio(self, fate: str, ms: float) -> None:
        """`fate`: received, inserted (silence for packets that never came), dropped or late."""
        self._audio_ms[fate] += ms

    def frame(self, fate: str) -> None:
        """`fate`: one of `names.FRAME_FATES`."""
        self.frames.labels(fate).inc()

    def frame_rung(self, rung: str) -> None:
        """`rung`: one of `names.RUNGS`."""
        self.frame_rungs.labels(rung).inc()

    def engine(self, stats: Stats) -> None:
        """The engine's newest heartbeat."""
        self._engine.stats = stats

    def totals(self) -> dict[str, dict[str, float]]:
        """Sound and frames since the start, by what became of them."""
        self._count_audio()
        return {"audio_ms": by_label(self.audio_s, 1000), "frames": by_label(self.frames)}

    def _count_audio(self) -> None:
        while self._audio_ms:
            fate, ms = self._audio_ms.popitem()
            self.audio_s.labels(fate).inc(ms / 1000)

    def page(self) -> MetricsPage:
        """All values as they are now."""
        self._count_audio()
        return MetricsPage(tuple(self.registry.collect()))


def by_label(counter: Counter, scale: float = 1) -> dict[str, float]:
    """A counter's values by its only label's, times `scale`."""
    return {
        next(iter(sample.labels.values())): round(sample.value * scale, 3)
        for metric in counter.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    }
