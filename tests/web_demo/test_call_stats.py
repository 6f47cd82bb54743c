"""A call's statistics: numbers of one second out of counters that may be reset."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

SECONDS = """async (reports) => {
  const { countersOf, secondOf } = await import("./call-stats.js");
  let before = null;
  return reports.map((report) => {
    const now = countersOf(new Map(report.map((stat, i) => [String(i), stat])));
    const second = secondOf(before, now);
    before = now;
    return second;
  });
}"""
Json = dict[str, Any]


def report(seconds: float, *, lost: int = 0, concealed: int = 0, silent: int = 0) -> list[Json]:
    """After so many seconds of sound, of which 40 ms stood in the buffer all the time."""
    samples = round(48_000 * seconds)
    sound = {
        "type": "inbound-rtp",
        "kind": "audio",
        "jitterBufferDelay": 0.040 * samples,
        "jitterBufferEmittedCount": samples,
        "packetsLost": lost,
        "packetsReceived": round(50 * seconds),
        "concealedSamples": concealed,
        "silentConcealedSamples": silent,
        "totalSamplesReceived": samples,
    }
    pair = {"type": "candidate-pair", "nominated": True, "state": "succeeded"}
    return [{"type": "inbound-rtp", "kind": "video"}, sound, pair | {"currentRoundTripTime": 0.02}]


def seconds_of(workbench: Page, *reports: list[Json]) -> list[Json]:
    told: list[Json] = workbench.evaluate(SECONDS, list(reports))
    return told


def test_a_second_is_the_growth_of_the_counters(workbench: Page) -> None:
    """What was lost and made up in this second, not since the call began."""
    _, second = seconds_of(
        workbench, report(10, lost=7, concealed=4_800), report(11, lost=9, concealed=7_200)
    )
    assert second["buffer_ms"] == pytest.approx(40)
    assert (second["lost"], second["received"]) == (2, 50)
    assert second["concealed"] == pytest.approx(0.05)
    assert second["round_trip_ms"] == pytest.approx(20)


def test_the_silence_between_answers_is_not_made_up(workbench: Page) -> None:
    """Browsers count it as concealed: nothing is sent then, so all of it would be."""
    _, second = seconds_of(workbench, report(10), report(11, concealed=48_000, silent=47_520))
    assert second["concealed"] == pytest.approx(0.01)


def test_a_reset_counter_counts_from_nothing(workbench: Page) -> None:
    """A new track begins at zero: no negative loss, no negative time."""
    _, second = seconds_of(
        workbench, report(100, lost=50, concealed=9_600), report(1, lost=1, concealed=480)
    )
    assert second["buffer_ms"] == pytest.approx(40)
    assert (second["lost"], second["received"]) == (1, 50)
    assert second["concealed"] == pytest.approx(0.01)


def test_a_call_without_sound_has_no_numbers(workbench: Page) -> None:
    """Null is not zero: before the first packet nothing is known, and after a still second too."""
    still = report(10)
    first, _, third = seconds_of(workbench, [], still, still)
    assert first == {
        "buffer_ms": None,
        "lost": None,
        "received": None,
        "concealed": None,
        "round_trip_ms": None,
    }
    assert third["buffer_ms"] is None
    assert third["concealed"] is None
