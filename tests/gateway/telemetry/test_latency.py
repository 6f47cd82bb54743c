"""The latency budget: every instant has one owner, and what is not known is None."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from headstart.engine.api import Chunk, Span, TurnRef
from headstart.gateway.telemetry.latency import (
    CHUNK_LATENCIES_KEPT,
    ENGINE_STAGES,
    STAGES,
    Anchor,
    BudgetError,
    ChunkBudget,
    ChunkSummary,
    TurnBudget,
    TurnStamps,
)

MS = 1_000_000


def span(stage: str, start_ms: float, end_ms: float) -> Span:
    return Span(stage, int(start_ms * MS), int(end_ms * MS))


def spoken(**changes: object) -> TurnStamps:
    """Last speech at 1000 ms, endpoint at 1500, first delta at 1530, sent at 1532."""
    stamps: dict[str, object] = {
        "last_speech_received_ns": 1000 * MS,
        "endpoint_ns": 1500 * MS,
        "first_delta_received_ns": 1530 * MS,
        "sent_ns": 1532 * MS,
    }
    return TurnStamps(**(stamps | changes))  # type: ignore[arg-type]


def known(stages: dict[str, float | None]) -> dict[str, float]:
    return {stage: ms for stage, ms in stages.items() if ms is not None}


spans = st.lists(
    st.builds(
        lambda stage, start, length: Span(stage, start, start + length),
        st.sampled_from(ENGINE_STAGES),
        st.integers(0, 2_000 * MS),
        st.integers(0, 600 * MS),
    ),
    max_size=12,
)
lengths = st.none() | st.integers(0, 700 * MS)


@settings(max_examples=300, deadline=None)
@given(
    spans=spans,
    is_spoken=st.booleans(),
    captured=st.none() | st.integers(0, 20_000 * MS),
    buffer_ns=lengths,
    resample_ns=lengths,
    hangover=st.integers(0, 900 * MS),
    first=st.none() | st.integers(0, 3_000 * MS),
    tail=st.integers(0, 500 * MS),
)
def test_stages_sum_to_the_total(
    spans: list[Span],
    is_spoken: bool,
    captured: int | None,
    buffer_ns: int | None,
    resample_ns: int | None,
    hangover: int,
    first: int | None,
    tail: int,
) -> None:
    """For any stamps: to the nanosecond, and within 1 ms as rounded for the wire; no stage is
    negative, and none is longer than the work reported for it."""
    end = 500 * MS + hangover
    stamps = TurnStamps(
        sent_ns=max(end, first or 0) + tail,
        captured_ns=captured,
        last_speech_received_ns=500 * MS if is_spoken else None,
        buffer_ns=buffer_ns,
        resample_ns=resample_ns,
        endpoint_ns=end,
        requested_ns=end,
        first_delta_received_ns=first,
        spans=tuple(spans),
    )
    budget = TurnBudget.from_stamps(stamps)
    owned = [ns for ns in budget.stages_ns.values() if ns is not None]
    assert sum(owned) == budget.total_ns
    assert min(owned) >= 0
    assert tuple(budget.stages_ns) == STAGES
    wire = budget.to_wire()
    assert abs(sum(known(wire["stages_ms"]).values()) - wire["total_ms"]) < 1.0
    for stage in ENGINE_STAGES:
        work, visible = budget.work_ns[stage], budget.stages_ns[stage]
        assert stage == "queue" or (work is None) == (visible is None)
        assert stage == "queue" or (visible or 0) <= (work or 0)


def test_a_spoken_turn_is_cut_in_order() -> None:
    """The hangover ends at the endpoint; then the spans, the gap as queue, and the send."""
    budget = TurnBudget.from_stamps(
        spoken(
            captured_ns=960 * MS,
            buffer_ns=30 * MS,
            resample_ns=1 * MS,
            spans=(span("prefill", 1505, 1515), span("decode_first", 1515, 1528)),
        )
    )
    assert known(budget.stages_ms) == {
        "network": 40.0,
        "buffer": 30.0,
        "resample": 1.0,
        "vad_hangover": 469.0,
        "queue": 7.0,
        "prefill": 10.0,
        "decode_first": 13.0,
        "send": 2.0,
    }
    assert (budget.anchor, budget.total_ms) == (Anchor.CAPTURED, 572.0)


def test_work_in_the_hangover_is_hidden() -> None:
    """What was done before the endpoint shows in `work_ms` and `hidden_ms`, not in the stages."""
    budget = TurnBudget.from_stamps(
        spoken(
            spans=(
                span("mel", 1200, 1202),
                span("encode", 1202, 1222),
                span("prefill", 1490, 1510),
                span("decode_first", 1510, 1529),
            )
        )
    )
    assert budget.stages_ms["mel"] == budget.stages_ms["encode"] == 0.0
    assert budget.stages_ms["prefill"] == 10.0
    assert budget.work_ms["encode"] == 20.0
    assert budget.work_ms["prefill"] == 20.0
    assert budget.work_ms["project"] is None
    assert budget.hidden_ms == 2.0 + 20.0 + 10.0


def test_overlap_belongs_to_the_earlier_stage() -> None:
    """Encoding beside a prefill owns the instants both ran; waiting owns only what is left."""
    budget = TurnBudget.from_stamps(
        spoken(
            spans=(
                span("queue", 1500, 1530),
                span("prefill", 1505, 1525),
                span("encode", 1500, 1510),
            )
        )
    )
    stages = known(budget.stages_ms)
    assert (stages["encode"], stages["prefill"], stages["queue"]) == (10.0, 15.0, 5.0)


def test_missing_anchors_are_none() -> None:
    """Without a client stamp there is no network stage, without measurements no buffer; zero is
    kept for what was measured as zero."""
    budget = TurnBudget.from_stamps(spoken(resample_ns=0))
    assert budget.anchor is Anchor.RECEIVED
    assert budget.stages_ms["network"] is None
    assert budget.stages_ms["buffer"] is None
    assert budget.stages_ms["mel"] is None
    assert budget.stages_ms["resample"] == 0.0


def test_a_text_turn_has_no_hangover() -> None:
    """It counts from the request, and knows nothing of the audio stages."""
    budget = TurnBudget.from_stamps(
        TurnStamps(
            sent_ns=150 * MS,
            requested_ns=100 * MS,
            first_delta_received_ns=149 * MS,
            spans=(span("prefill", 101, 140), span("decode_first", 140, 149)),
        )
    )
    assert budget.anchor is Anchor.REQUESTED
    assert known(budget.stages_ms) == {
        "queue": 1.0,
        "prefill": 39.0,
        "decode_first": 9.0,
        "send": 1.0,
    }


@pytest.mark.parametrize("captured_ms", [1001.0, -9001.0])
def test_a_capture_stamp_of_another_clock_is_ignored(captured_ms: float) -> None:
    """After the receipt, or ten seconds before it: not a network, so no network stage."""
    budget = TurnBudget.from_stamps(spoken(captured_ns=int(captured_ms * MS)))
    assert budget.stages_ms["network"] is None
    assert budget.total_ms == 532.0


def test_an_answer_speculated_in_the_hangover_costs_only_its_sending() -> None:
    """The first token was there before the endpoint: nothing but hangover and send is left."""
    budget = TurnBudget.from_stamps(spoken(first_delta_received_ns=1400 * MS, sent_ns=1501 * MS))
    assert known(budget.stages_ms) == {"vad_hangover": 500.0, "queue": 0.0, "send": 1.0}


def test_an_answer_without_text_has_no_send() -> None:
    """No first delta: the time went to the stages and the queue."""
    budget = TurnBudget.from_stamps(spoken(first_delta_received_ns=None))
    assert budget.stages_ms["send"] is None
    assert budget.stages_ms["queue"] == 32.0


def test_over_budget_is_above_and_not_at_it() -> None:
    """532 ms is over 531 and not over 532; the default is 800."""
    assert TurnBudget.from_stamps(spoken(), latency_budget_ms=531).over_budget
    assert not TurnBudget.from_stamps(spoken(), latency_budget_ms=532).over_budget
    assert not TurnBudget.from_stamps(spoken()).over_budget


def test_the_wire_form_is_json_and_marks_fast_feeds() -> None:
    """All of it survives JSON; a file fed faster than real time says so."""
    wire = TurnBudget.from_stamps(spoken(realtime=False)).to_wire()
    assert json.loads(json.dumps(wire)) == wire
    assert wire["realtime"] is False
    assert list(wire["stages_ms"]) == list(STAGES)


@pytest.mark.parametrize(
    ("stamps", "sentence"),
    [
        (TurnStamps(sent_ns=1), "needs last_speech_received_ns or requested_ns"),
        (spoken(endpoint_ns=None), "expected an endpoint"),
        (spoken(endpoint_ns=999 * MS), "at or after the last speech"),
        (spoken(sent_ns=1499 * MS), "before the turn's end"),
        (spoken(spans=(span("thinking", 1, 2),)), "got 'thinking'"),
        (spoken(spans=(span("mel", 2, 1),)), "ends 1000000 ns early"),
    ],
)
def test_contradictions_are_named(stamps: TurnStamps, sentence: str) -> None:
    """Stamps that cannot be true are refused, with what is wrong."""
    with pytest.raises(BudgetError, match=sentence):
        TurnBudget.from_stamps(stamps)


def chunk(latency_ms: float, samples: int = 8000, **stages_ms: float) -> ChunkBudget:
    return ChunkBudget.from_chunk(Chunk("s", TurnRef(1), 0, samples, stages_ms, latency_ms, 10, 2))


def test_the_reference_chunk_has_89_percent_headroom() -> None:
    """mel 2.1 + encode 18.5 + project 0.3 + 35.0 of a 500 ms chunk: 55.9 ms."""
    budget = chunk(60.0, mel=2.1, encode=18.5, project=0.3, prefill=35.0)
    assert budget.work_ms == pytest.approx(55.9)
    assert budget.to_wire()["headroom_percent"] == 88.8
    assert not budget.overrun


@pytest.mark.parametrize(("latency_ms", "encode_ms"), [(501.0, 10.0), (400.0, 501.0)])
def test_a_chunk_overruns_by_work_or_by_waiting(latency_ms: float, encode_ms: float) -> None:
    """Either of them longer than the chunk is an overrun; headroom goes below zero with work."""
    budget = chunk(latency_ms, encode=encode_ms)
    assert budget.overrun
    assert (budget.headroom_percent < 0) == (encode_ms > 500)


def test_a_short_rest_has_the_time_of_a_whole_chunk() -> None:
    """80 ms of sound at a pause, through after 120 ms: the next chunk takes 500 ms to come, so
    nobody has fallen behind. A chunk that is longer than those of now has its own length."""
    rest = Chunk("s", TurnRef(1), 0, 1280, {"encode": 40.0, "queue": 80.0}, 120.0, 1, 0)
    budget = ChunkBudget.from_chunk(rest, regular_ms=500)
    assert (budget.duration_ms, budget.due_ms) == (80, 500)
    assert not budget.overrun
    assert budget.headroom_percent == pytest.approx(76)
    slow = ChunkBudget.from_chunk(structs.replace(rest, latency_ms=501.0), regular_ms=500)
    assert slow.overrun
    before = ChunkBudget.from_chunk(structs.replace(rest, samples=8000), regular_ms=200)
    assert before.due_ms == 500


def test_a_chunk_without_samples_is_refused() -> None:
    """It has no duration to be held against."""
    with pytest.raises(BudgetError, match="needs samples, got 0"):
        chunk(1.0, samples=0)


def test_the_summary_counts_all_and_ranks_the_newest() -> None:
    """Count, overruns and maximum cover the session; percentiles a bounded tail of it."""
    summary = ChunkSummary()
    assert summary.to_wire()["latency_p50_ms"] is None
    assert summary.to_wire()["latency_max_ms"] is None
    summary.add(chunk(900.0))
    for i in range(CHUNK_LATENCIES_KEPT):
        summary.add(chunk(float(i % 100 + 1)))
    wire = summary.to_wire()
    assert (wire["count"], wire["overruns"], wire["latency_max_ms"]) == (513, 1, 900.0)
    assert summary.percentile_ms(100) == 100.0
    assert abs(wire["latency_p50_ms"] - 50.0) <= 1.0
    assert abs(wire["latency_p95_ms"] - 95.0) <= 1.0
