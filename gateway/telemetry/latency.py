"""Where every millisecond of a turn went, and whether a chunk kept up with its own audio.

A turn's interval runs from its anchor to the instant its first token was sent, and is cut so that
every instant belongs to exactly one stage; hence the stages sum to the total, to the nanosecond.

    captured ── received ── released ── resampled ─────── endpoint ─────────── first delta ── sent
       │ network   │ buffer     │ resample  │  vad_hangover   │ engine's spans,      │   send   │
                                                             │ the gaps are `queue` │

The anchor is the capture of the last speech sample if the client stamps its audio; on a call, when
its packet left the peer, an estimate (`gateway.transport.webrtc.rtp_clock`: half a round trip, and
what the packet took beyond the quickest); else its receipt, else (a text turn, or an answer asked
for later) the request. A stage nobody could measure is None, never 0. What the engine did before
the endpoint cost the person nothing: it is in `work_ms`, and `hidden_ms` says how much of it there
was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from headstart.engine.api import Chunk, Span
from headstart.gateway.audio.clock import NS_PER_MS, engine_samples_to_exact_ms, ns_to_ms

DEFAULT_LATENCY_BUDGET_MS = 800

# In the order sound passes through them.
STAGES = (
    "network",
    "buffer",
    "resample",
    "vad_hangover",
    "mel",
    "encode",
    "project",
    "read",
    "queue",
    "prefill",
    "decode_first",
    "detokenize",
    "send",
)
# The engine's stages; where spans overlap, the earlier in this order owns the instant. `queue`
# comes last: waiting counts only where no work was done.
ENGINE_STAGES = (
    *("mel", "encode", "project", "prefill", "decode_first", "detokenize"),
    *("read", "queue"),  # reading a picture goes on beside the others
)

# A capture stamp so far before the receipt is of another clock, not of a slow network.
MAX_NETWORK_NS = 10_000 * NS_PER_MS

CHUNK_LATENCIES_KEPT = 512  # newest ones; about 4 minutes of 500 ms chunks


class BudgetError(ValueError):
    """Stamps that contradict each other, or a span of a stage that does not exist."""


class Anchor(StrEnum):
    """Which instant the total counts from."""

    CAPTURED = "captured"
    DEPARTED = "departed"
    RECEIVED = "received"
    REQUESTED = "requested"


@dataclass(frozen=True)
class TurnStamps:
    """What is known of a turn, in monotonic ns; None: not known or does not apply.

    A spoken turn has `last_speech_received_ns` and `endpoint_ns`, any other only `requested_ns`.
    `buffer_ns` and `resample_ns` are lengths: what the packet with the last speech sample spent in
    the receive buffer and in `SpeechSegmenter.feed`. `by_track`: `captured_ns` is when the packet
    left the peer, as estimated. `first_delta_received_ns` is None for an answer without text.
    """

    sent_ns: int
    captured_ns: int | None = None
    by_track: bool = False
    last_speech_received_ns: int | None = None
    buffer_ns: int | None = None
    resample_ns: int | None = None
    endpoint_ns: int | None = None
    requested_ns: int | None = None
    first_delta_received_ns: int | None = None
    spans: tuple[Span, ...] = ()
    realtime: bool = True


@dataclass(frozen=True)
class TurnBudget:
    """A turn's budget in ns. `stages_ns` has a key for each of `STAGES` and sums to `total_ns`;
    `work_ns` has the full length of the engine's spans by stage; `hidden_ns` is the part of that
    work, stages added up, which was done before the endpoint."""

    anchor: Anchor
    total_ns: int
    stages_ns: Mapping[str, int | None]
    work_ns: Mapping[str, int | None]
    hidden_ns: int
    realtime: bool
    latency_budget_ms: float = DEFAULT_LATENCY_BUDGET_MS

    @property
    def total_ms(self) -> float:
        return ns_to_ms(self.total_ns)

    @property
    def stages_ms(self) -> dict[str, float | None]:
        return _in_ms(self.stages_ns)

    @property
    def work_ms(self) -> dict[str, float | None]:
        return _in_ms(self.work_ns)

    @property
    def hidden_ms(self) -> float:
        return ns_to_ms(self.hidden_ns)

    @property
    def over_budget(self) -> bool:
        return self.total_ns > self.latency_budget_ms * NS_PER_MS

    @classmethod
    def from_stamps(
        cls, stamps: TurnStamps, latency_budget_ms: float = DEFAULT_LATENCY_BUDGET_MS
    ) -> TurnBudget:
        """Cut the turn's interval into stages. Raises BudgetError."""
        _check_spans(stamps.spans)
        head = _Head.of(stamps)
        if stamps.sent_ns < head.end_ns:
            raise BudgetError(
                f"the first token was sent {head.end_ns - stamps.sent_ns} ns before the turn's end"
            )
        stages: dict[str, int | None] = dict.fromkeys(STAGES)
        stages.update(head.stages_ns)
        first_ns = stamps.first_delta_received_ns
        served_ns = stamps.sent_ns if first_ns is None else min(first_ns, stamps.sent_ns)
        served_ns = max(served_ns, head.end_ns)
        stages.update(_partition(stamps.spans, head.end_ns, served_ns))
        if first_ns is not None:
            stages["send"] = stamps.sent_ns - served_ns
        return cls(
            anchor=head.anchor,
            total_ns=stamps.sent_ns - head.start_ns,
            stages_ns=stages,
            work_ns=_work(stamps.spans),
            hidden_ns=sum(_hidden(stamps.spans, head.end_ns).values()),
            realtime=stamps.realtime,
            latency_budget_ms=latency_budget_ms,
        )

    def to_wire(self) -> dict[str, Any]:
        """JSON-ready, as in the protocol's budget event and in `headstart talk --json`."""
        return {
            "anchor": self.anchor.value,
            "total_ms": self.total_ms,
            "stages_ms": self.stages_ms,
            "work_ms": self.work_ms,
            "hidden_ms": self.hidden_ms,
            "realtime": self.realtime,
            "latency_budget_ms": self.latency_budget_ms,
            "over_budget": self.over_budget,
        }


@dataclass(frozen=True)
class Unmeasured:
    """Stands for the budget of a turn whose stamps contradict each other: nothing is known."""

    latency_budget_ms: float
    realtime: bool
    total_ns: None = None

    def to_wire(self) -> dict[str, Any]:
        """As of a `TurnBudget`, with null for each number."""
        known = {"realtime": self.realtime, "latency_budget_ms": self.latency_budget_ms}
        unknown = dict.fromkeys(("anchor", "total_ms", "hidden_ms", "over_budget"))
        stages = {"stages_ms": dict.fromkeys(STAGES), "work_ms": _in_ms(_work(()))}
        return {**unknown, **stages, **known}


@dataclass(frozen=True)
class _Head:
    """The turn up to its endpoint or request: [start_ns, end_ns), cut into the receiving stages."""

    anchor: Anchor
    start_ns: int
    end_ns: int
    stages_ns: Mapping[str, int | None]

    @classmethod
    def of(cls, stamps: TurnStamps) -> _Head:
        received_ns = stamps.last_speech_received_ns
        if received_ns is None:
            if stamps.requested_ns is None:
                raise BudgetError("a turn needs last_speech_received_ns or requested_ns")
            return cls(Anchor.REQUESTED, stamps.requested_ns, stamps.requested_ns, {})
        if stamps.endpoint_ns is None or stamps.endpoint_ns < received_ns:
            raise BudgetError(
                f"expected an endpoint at or after the last speech ({received_ns} ns), "
                f"got {stamps.endpoint_ns}"
            )
        stages: dict[str, int | None] = {}
        cut_ns = received_ns
        for stage, length_ns in (("buffer", stamps.buffer_ns), ("resample", stamps.resample_ns)):
            if length_ns is not None:
                taken = min(max(0, length_ns), stamps.endpoint_ns - cut_ns)
                stages[stage] = taken
                cut_ns += taken
        stages["vad_hangover"] = stamps.endpoint_ns - cut_ns
        captured_ns = stamps.captured_ns
        if captured_ns is None or not 0 <= received_ns - captured_ns <= MAX_NETWORK_NS:
            return cls(Anchor.RECEIVED, received_ns, stamps.endpoint_ns, stages)
        stages["network"] = received_ns - captured_ns
        anchor = Anchor.DEPARTED if stamps.by_track else Anchor.CAPTURED
        return cls(anchor, captured_ns, stamps.endpoint_ns, stages)


def _check_spans(spans: Iterable[Span]) -> None:
    for span in spans:
        if span.stage not in ENGINE_STAGES:
            expected = " ".join(ENGINE_STAGES)
            raise BudgetError(f"expected a span of one of {expected}, got {span.stage!r}")
        if span.end_ns < span.start_ns:
            raise BudgetError(f"span of {span.stage} ends {span.start_ns - span.end_ns} ns early")


def _partition(spans: tuple[Span, ...], start_ns: int, end_ns: int) -> dict[str, int]:
    """Give every instant of [start_ns, end_ns) to one stage. Stages that have spans get a key, if
    only for 0 ns here, and `queue` always does: it owns the gaps."""
    owned = dict.fromkeys((s.stage for s in spans), 0) | {"queue": 0}
    near = [s for s in spans if s.start_ns < end_ns and s.end_ns > start_ns]
    edges = {start_ns, end_ns}
    for span in near:
        edges |= {max(span.start_ns, start_ns), min(span.end_ns, end_ns)}
    for left, right in pairwise(sorted(edges)):
        running = [s.stage for s in near if s.start_ns <= left and right <= s.end_ns]
        owner = min(running, key=ENGINE_STAGES.index, default="queue")
        owned[owner] += right - left
    return owned


def hidden_work_ns(stamps: TurnStamps) -> dict[str, int]:
    """Work done before the endpoint or the request, by stage; waiting is none."""
    spoken = stamps.last_speech_received_ns is not None
    end_ns = stamps.endpoint_ns if spoken else stamps.requested_ns
    return {} if end_ns is None else _hidden(stamps.spans, end_ns)


def _hidden(spans: Iterable[Span], end_ns: int) -> dict[str, int]:
    hidden: dict[str, int] = {}
    for span in spans:
        early_ns = min(span.end_ns, end_ns) - span.start_ns
        if span.stage != "queue" and early_ns > 0:
            hidden[span.stage] = hidden.get(span.stage, 0) + early_ns
    return hidden


def _work(spans: tuple[Span, ...]) -> dict[str, int | None]:
    work: dict[str, int | None] = dict.fromkeys(s for s in STAGES if s in ENGINE_STAGES)
    for span in spans:
        work[span.stage] = (work[span.stage] or 0) + span.end_ns - span.start_ns
    return work


def _in_ms(stages_ns: Mapping[str, int | None]) -> dict[str, float | None]:
    return {stage: None if ns is None else ns_to_ms(ns) for stage, ns in stages_ns.items()}


# --- chunks ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChunkBudget:
    """One chunk's cost against the time until the next one is there: over it, the session falls
    behind. `regular_ms`: how long the session's chunks are now; what is left at a pause or at the
    end of speech is a shorter one, behind which the next takes no less time to come."""

    start_sample: int
    duration_ms: float
    stages_ms: Mapping[str, float]
    latency_ms: float
    regular_ms: float = 0.0

    @classmethod
    def from_chunk(cls, chunk: Chunk, regular_ms: float = 0.0) -> ChunkBudget:
        """Raises BudgetError for a chunk without samples: there is no such chunk."""
        if chunk.samples <= 0:
            raise BudgetError(f"a chunk needs samples, got {chunk.samples}")
        return cls(
            chunk.start_sample,
            engine_samples_to_exact_ms(chunk.samples),
            chunk.stages_ms,
            chunk.latency_ms,
            regular_ms,
        )

    @property
    def due_ms(self) -> float:
        """From its last sample to its deadline, the end of the next chunk."""
        return max(self.duration_ms, self.regular_ms)

    @property
    def work_ms(self) -> float:
        return sum(self.stages_ms.values())

    @property
    def headroom_percent(self) -> float:
        """Share of `due_ms` that its work left over; negative when it overran."""
        return 100.0 * (1.0 - self.work_ms / self.due_ms)

    @property
    def overrun(self) -> bool:
        """The work, or the work with its waiting, took longer than `due_ms`."""
        return max(self.work_ms, self.latency_ms) > self.due_ms

    def to_wire(self) -> dict[str, Any]:
        return {
            "start_sample": self.start_sample,
            "duration_ms": round(self.duration_ms, 3),
            "due_ms": round(self.due_ms, 3),
            "stages_ms": {stage: round(ms, 3) for stage, ms in self.stages_ms.items()},
            "latency_ms": round(self.latency_ms, 3),
            "headroom_percent": round(self.headroom_percent, 1),
            "overrun": self.overrun,
        }


class ChunkSummary:
    """A session's chunks so far: all are counted; percentiles are of the newest 512."""

    def __init__(self) -> None:
        self.count = 0
        self.overruns = 0
        self.max_ms = 0.0
        self._latencies_ms: deque[float] = deque(maxlen=CHUNK_LATENCIES_KEPT)

    def add(self, chunk: ChunkBudget) -> None:
        self.count += 1
        self.overruns += chunk.overrun
        self.max_ms = max(self.max_ms, chunk.latency_ms)
        self._latencies_ms.append(chunk.latency_ms)

    def percentile_ms(self, percent: int) -> float | None:
        """Latency by nearest rank; None before the first chunk."""
        if not self._latencies_ms:
            return None
        ranked = sorted(self._latencies_ms)
        return ranked[max(0, -(-len(ranked) * percent // 100) - 1)]

    def to_wire(self) -> dict[str, Any]:
        p50, p95 = self.percentile_ms(50), self.percentile_ms(95)
        return {
            "count": self.count,
            "overruns": self.overruns,
            "latency_p50_ms": None if p50 is None else round(p50, 3),
            "latency_p95_ms": None if p95 is None else round(p95, 3),
            "latency_max_ms": round(self.max_ms, 3) if self.count else None,
        }
