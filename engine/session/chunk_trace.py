"""Timing of one audio chunk, from its arrival until its words are in the KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headstart.engine import api

# The recogniser's stages by their names in the latency budget. What turns sound into tokens of the
# language model is the `project` stage: for the small models, Whisper's decoder.
_BUDGET_STAGE = {"mel": "mel", "encode": "encode", "decode": "project"}
NS_PER_MS = 1_000_000


def stage_spans(began_ns: int, stages_ms: Mapping[str, float]) -> list[api.Span]:
    """The recogniser's stages as consecutive spans from `began_ns` on."""
    spans = []
    at_ns = began_ns
    for stage, took_ms in stages_ms.items():
        end_ns = at_ns + round(took_ms * NS_PER_MS)
        spans.append(api.Span(_BUDGET_STAGE[stage], at_ns, end_ns))
        at_ns = end_ns
    return spans


def budget_stages(stages_ms: Mapping[str, float], share: float) -> dict[str, float]:
    """`share` of each of the recogniser's stages, in ms, by the budget's names."""
    return {_BUDGET_STAGE[stage]: took_ms * share for stage, took_ms in stages_ms.items()}


@dataclass(slots=True)
class ChunkTrace:
    """One chunk on its way into the cache.

    `heard_ms`: its share of the recogniser's work, by stage. `prefilled_before`: the stream's count
    of prefilled tokens before the chunk; None for all but the last chunk of one pass.
    """

    audio: api.Audio
    heard_ms: Mapping[str, float]
    prefilled_before: int | None = None
    rolled_back: int = 0
    prefill_ns: int = 0  # its share of the steps that prefilled this session's tokens

    def report(self, session: str, prefilled_total: int, now_ns: int) -> api.Chunk:
        """The cost of a chunk whose words are in the cache."""
        stages_ms = {**self.heard_ms, "prefill": self.prefill_ns / NS_PER_MS}
        latency_ms = (now_ns - self.audio.received_ns) / NS_PER_MS
        stages_ms["queue"] = max(latency_ms - sum(stages_ms.values()), 0.0)
        before = prefilled_total if self.prefilled_before is None else self.prefilled_before
        return api.Chunk(
            session=session,
            ref=self.audio.ref,
            start_sample=self.audio.start_sample,
            samples=self.audio.samples,
            stages_ms=stages_ms,
            latency_ms=latency_ms,
            prefilled_tokens=prefilled_total - before,
            rolled_back_tokens=self.rolled_back,
        )
