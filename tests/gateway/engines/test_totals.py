"""Several engines' heartbeats as one."""

from __future__ import annotations

from typing import Any

from headstart.engine import api
from headstart.gateway.engines.totals import COUNTERS, GAUGES, Totals, summed


def heartbeat(incarnation: str = "1", **fields: Any) -> api.Stats:
    needed = dict.fromkeys(
        ("ping_sent_ns", "sessions", "kv_blocks_used", "kv_blocks_total", "rss_bytes"), 0
    )
    needed |= {"pending_prefill_tokens": 0, "steps": 0}
    return api.Stats(**(needed | fields | {"incarnation": incarnation}))


def test_one_engine_is_as_it_says() -> None:
    """The very same heartbeat."""
    totals = Totals()
    only = heartbeat(steps=3)
    totals.add("a", only)
    assert totals.of({"a": only}) is only
    assert Totals().of({}) is None


def test_every_number_is_either_added_or_named() -> None:
    """A new field of `Stats` must be thought of here."""
    known = {"ping_sent_ns", "incarnation", "kv_tokens", "level", "recent_steps", "step_totals"}
    known |= {"llm_server", "llm_servers", "now_ns"}
    assert {*COUNTERS, *GAUGES, *known} == set(api.Stats.__struct_fields__)


def test_the_sum() -> None:
    """Numbers are added, by modality and bucket too; the level is the highest."""
    steps = api.StepStats(count=2, busy_ms=4.0, p95_ms=3.0, max_ms=3.0, queue_max=1)
    seconds = api.StepTotals({"decode": api.Counts([1, 0], 1.0)})
    one = heartbeat(sessions=1, kv_tokens={"text": 2}, recent_steps=steps, step_totals=seconds)
    more = api.StepTotals({"decode": api.Counts([0, 2], 3.0), "prefill": api.Counts([1, 1], 1.0)})
    other = heartbeat(
        "2",
        sessions=2,
        kv_tokens={"text": 1, "image": 5},
        level=api.Level.OFFLOADING,
        recent_steps=api.StepStats(count=5, busy_ms=1.0, p50_ms=0.2, max_ms=0.5, queue_max=4),
        step_totals=more,
    )
    both = summed([one, other])
    assert both.sessions == 3
    assert both.kv_tokens == {"text": 3, "image": 5}
    assert both.level is api.Level.OFFLOADING
    assert (both.recent_steps.count, both.recent_steps.busy_ms) == (7, 5.0)
    assert (both.recent_steps.p50_ms, both.recent_steps.max_ms) == (0.2, 3.0)
    assert both.recent_steps.queue_max == 4
    assert both.step_totals.seconds["decode"] == api.Counts([1, 2], 4.0)
    assert both.step_totals.seconds["prefill"] == api.Counts([1, 1], 1.0)


def test_counters_do_not_fall_when_one_engine_starts_again() -> None:
    """What it had counted before stays in the sum; gauges are of now."""
    totals = Totals()
    a, b = heartbeat(steps=10, sessions=3), heartbeat("2", steps=5, sessions=1)
    totals.add("a", a)
    totals.add("b", b)
    whole = totals.of({"a": a, "b": b})
    assert whole is not None
    assert (whole.steps, whole.sessions) == (15, 4)
    again = heartbeat("3", steps=1, sessions=0)
    totals.add("a", again)
    whole = totals.of({"a": again, "b": b})
    assert whole is not None
    assert (whole.steps, whole.sessions) == (16, 1)
    totals.forget("b")
    whole = totals.of({"a": again})
    assert whole is not None
    assert (whole.steps, whole.sessions) == (16, 0)


def test_an_llm_server_of_several_engines_is_named_once() -> None:
    """What they count is added; it is ready if one of them finds it so."""
    down = api.LlmServerStatus("http://x", "down", "no answer", sessions=1, faults=2, waiting=3)
    ready = api.LlmServerStatus("http://x", "ready", sessions=2, kv_share=0.5)
    other = api.LlmServerStatus("http://y", "draining", answers=1)
    whole = summed([heartbeat(llm_servers=[down, other]), heartbeat(llm_servers=[ready])])
    both = api.LlmServerStatus("http://x", "ready", sessions=3, faults=2, waiting=3, kv_share=0.5)
    assert whole.llm_servers == [both, other]


def test_what_llm_servers_were_asked_is_added_by_kind_and_code() -> None:
    """Engines with a decoder of their own add nothing, and earlier lives of an engine count on.
    Each server that decodes for one of them is listed."""
    first = api.LlmServerTotals({"warm_up": 2}, {}, {"warm_up": {"cached": 7}}, {"llm_busy": 1}, 1)
    second = api.LlmServerTotals(
        {"warm_up": 1, "answer": 1}, {"answer": 1}, {"warm_up": {"cached": 1, "computed": 4}}, {}, 2
    )
    whole = summed([heartbeat(llm_server=first), heartbeat(), heartbeat(llm_server=second)])
    assert whole.llm_server == api.LlmServerTotals(
        {"warm_up": 3, "answer": 1},
        {"answer": 1},
        {"warm_up": {"cached": 8, "computed": 4}},
        {"llm_busy": 1},
        3,
    )
    assert summed([heartbeat(), heartbeat()]).llm_server is None
    here, there = (api.LlmServerStatus(url, "ready") for url in ("http://a", "http://b"))
    listed = summed([heartbeat(llm_servers=[here]), heartbeat(llm_servers=[there])])
    assert listed.llm_servers == [here, there]
    totals = Totals()
    totals.add("a", heartbeat(llm_server=first))
    totals.add("a", heartbeat("2", llm_server=second))
    totals.add("b", heartbeat("3"))
    again = totals.of({"a": heartbeat("2", llm_server=second), "b": heartbeat("3")})
    assert again is not None
    assert again.llm_server == whole.llm_server
