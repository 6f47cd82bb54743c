"""A turn's record: what its times are relative to, what they sum to, and what is null."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine import api
from headstart.gateway.telemetry.latency import ENGINE_STAGES, TurnBudget, TurnStamps, Unmeasured
from headstart.gateway.telemetry.turn_record import RECORD_STAGES, Playout, TurnRecord, Voice
from tests.gateway.dashboard.records import NS_PER_MS, record

NS = st.integers(0, 10**10)
LENGTH = st.integers(0, 10**9)


@st.composite
def spoken(draw: st.DrawFn) -> TurnRecord:
    """A spoken turn with any spans, before and after its endpoint."""
    at_ns = 10**12 + draw(NS)
    captured_ns = draw(st.none() | st.builds(lambda ns: at_ns - ns, LENGTH))
    endpoint_ns = at_ns + draw(LENGTH)
    delta_ns = endpoint_ns + draw(LENGTH)
    sent_ns = delta_ns + draw(LENGTH)
    spans = []
    for stage in draw(st.lists(st.sampled_from(ENGINE_STAGES), max_size=8)):
        start_ns = at_ns - 10**9 + draw(st.integers(0, 3 * 10**9))
        spans.append(api.Span(stage, start_ns, start_ns + draw(LENGTH)))
    stamps = TurnStamps(
        sent_ns=sent_ns,
        captured_ns=captured_ns,
        last_speech_received_ns=at_ns,
        buffer_ns=draw(st.none() | LENGTH),
        resample_ns=draw(st.none() | LENGTH),
        endpoint_ns=endpoint_ns,
        first_delta_received_ns=delta_ns,
        spans=tuple(spans),
    )
    sound_ns = sent_ns + draw(LENGTH)
    heard_ns = draw(st.none() | st.builds(lambda ns: sound_ns + ns, LENGTH))
    return record(
        stamps=stamps,
        budget=TurnBudget.from_stamps(stamps),
        voice=Voice(delta_ns, sound_ns, 100, None),
        playout=None if heard_ns is None else Playout(heard_ns, "client"),
        chunks=0,
    )


@given(spoken())
def test_stages_sum_to_what_a_person_waited_for(turn: TurnRecord) -> None:
    """To the first token without voice and playout, to the sound that was heard with them."""
    wire = turn.to_wire()
    stages = dict(wire["stages_ms"])
    assert set(stages) == set(RECORD_STAGES)
    slack_ms = 0.001 * len(stages)  # each is rounded to the microsecond
    heard_ms = wire["stamps_ms"]["playout_started"] or wire["stamps_ms"]["first_sound"]
    assert sum(ms or 0 for ms in stages.values()) == pytest.approx(heard_ms, abs=slack_ms)
    voice, playout = stages.pop("voice"), stages.pop("playout")
    assert sum(ms or 0 for ms in stages.values()) == pytest.approx(wire["total_ms"], abs=slack_ms)
    assert voice >= 0
    assert playout is None or playout >= 0
    assert wire["stamps_ms"]["first_token"] == pytest.approx(wire["total_ms"])


@given(spoken())
def test_times_are_relative_to_the_anchor(turn: TurnRecord) -> None:
    """Work under the speech is negative, and each span keeps its length."""
    wire = turn.to_wire()
    anchor = {"captured": "captured", "received": "received"}[wire["anchor"]]
    assert wire["stamps_ms"][anchor] == 0
    for span, (stage, start_ms, end_ms) in zip(turn.stamps.spans, wire["spans"], strict=True):
        assert stage == span.stage
        assert end_ms - start_ms == pytest.approx((span.end_ns - span.start_ns) / 1e6, abs=0.002)
        assert (start_ms < 0) == (span.start_ns < turn.origin_ns) or abs(start_ms) < 0.001
    json.dumps(wire, allow_nan=False)


@given(spoken())
def test_each_wait_names_its_owner(turn: TurnRecord) -> None:
    """Every stage that took time has one, no other has."""
    wire = turn.to_wire()
    assert set(wire["waits"]) == {stage for stage, ms in wire["stages_ms"].items() if ms}
    assert all(wait["owner"] for wait in wire["waits"].values())


def test_what_is_not_known_is_null() -> None:
    """Stamps that contradict each other; an answer of which nothing was ever sent."""
    for budget in (None, Unmeasured(800, True)):
        wire = record(budget=budget, voice=None, usage=None, kv=None).to_wire()
        assert (wire["total_ms"], wire["anchor"], wire["over_budget"]) == (None, None, None)
        assert set(wire["stages_ms"].values()) == {None}
        assert (wire["usage"], wire["kv"]) == (None, None)
        assert wire["speculation"] == {"kept": None, "wasted": None}
        assert wire["stamps_ms"]["received"] == 0
    assert record(budget=None).to_wire()["stamps_ms"]["first_token"] is None


def test_sound_before_the_first_token_was_sent_is_no_negative_stage() -> None:
    """The text of a slow reader waits, the sound of a call does not."""
    turn = record()
    early = Voice(turn.stamps.endpoint_ns, turn.stamps.sent_ns - 5 * NS_PER_MS, 100, None)
    assert dataclasses.replace(turn, voice=early).stages_ms["voice"] == 0


def test_who_says_when_it_was_heard() -> None:
    """A client owns its playout's wait, our own track's is ours."""
    turn = record()
    assert turn.voice is not None
    assert turn.voice.first_sound_ns is not None
    at_ns = turn.voice.first_sound_ns + 30 * NS_PER_MS
    for source, owner in (("client", "client"), ("track", "gateway")):
        wire = dataclasses.replace(turn, playout=Playout(at_ns, source)).to_wire()  # type: ignore[arg-type]
        assert wire["playout"] == {"delay_ms": 30, "source": source}
        assert wire["waits"]["playout"] == {"owner": owner}
