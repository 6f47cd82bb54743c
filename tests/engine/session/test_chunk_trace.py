"""Timing of one chunk."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headstart.engine.api import Audio, TurnRef
from headstart.engine.session.chunk_trace import ChunkTrace, budget_stages, stage_spans


def test_stages_follow_on_one_another() -> None:
    """The recogniser's stages become consecutive spans with the budget's names."""
    spans = stage_spans(100, {"mel": 1.0, "encode": 2.0, "decode": 3.0})
    assert [s.stage for s in spans] == ["mel", "encode", "project"]
    assert spans[0].start_ns == 100
    assert all(a.end_ns == b.start_ns for a, b in pairwise(spans))
    assert spans[-1].end_ns == 100 + 6_000_000


def test_a_report_sums_to_its_latency() -> None:
    """Time that is neither recognition nor prefill is queueing."""
    audio = Audio("s", TurnRef(1), 0, bytes(16_000), received_ns=0)
    heard_ms = budget_stages({"mel": 2.0, "encode": 4.0, "decode": 6.0}, 0.5)
    trace = ChunkTrace(audio, heard_ms, prefilled_before=10, rolled_back=2, prefill_ns=4_000_000)
    chunk = trace.report("s", prefilled_total=15, now_ns=20_000_000)
    assert sum(chunk.stages_ms.values()) == pytest.approx(20.0)
    assert chunk.stages_ms["queue"] == pytest.approx(10.0)
    assert (chunk.prefilled_tokens, chunk.rolled_back_tokens, chunk.samples) == (5, 2, 8_000)
