"""The Prometheus page shows what happened, in a registry of its own."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from headstart.engine.api import (
    STEP_SECONDS_LE,
    STEP_SESSIONS_LE,
    Chunk,
    Counts,
    FinishReason,
    Level,
    LlmServerTotals,
    Span,
    Stats,
    StepTotals,
    TurnRef,
    Usage,
)
from headstart.gateway.telemetry import names
from headstart.gateway.telemetry.latency import ChunkBudget, TurnBudget, TurnStamps
from headstart.gateway.telemetry.metrics import MAX_ERROR_CODES, OPEN_TURNS_MAX, Metrics
from headstart.gateway.telemetry.turn_record import Playout, TurnRecord, Voice

MS = 1_000_000
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
GATEWAY = Path(__file__).resolve().parents[3] / "gateway"


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    """(name, label values joined by commas) -> value, as a scraper reads the page."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.page().render()[0].decode())
        for sample in family.samples
    }


def record(total_ms: int, name: str = "resp_1", **more: Any) -> TurnRecord:
    """A typed question that was answered after so many ms. `realtime`, `voice` and so on."""
    stamps = TurnStamps(
        sent_ns=total_ms * MS,
        requested_ns=0,
        first_delta_received_ns=total_ms * MS,
        realtime=more.pop("realtime", True),
        spans=more.pop("spans", ()),
    )
    facts: dict[str, Any] = {
        "response_id": name,
        "session_id": "sess_1",
        "item_id": None,
        "turn": 0,
        "generation": 1,
        "model": "tiny",
        "latency_budget_ms": 800,
        "done_ns": 2000 * MS,
        "reason": "completed",
    }
    return TurnRecord(stamps=stamps, budget=TurnBudget.from_stamps(stamps), **(facts | more))


def heard_at(sound_ms: int) -> Voice:
    return Voice(None, sound_ms * MS, 500.0, None)


def test_two_instances_share_nothing() -> None:
    """Each has its own registry."""
    first, second = Metrics(), Metrics()
    first.session_opened()
    assert samples(first)[("headstart_sessions_open", "")] == 1
    assert samples(second)[("headstart_sessions_open", "")] == 0


def test_sessions_go_up_and_down() -> None:
    """Open ones are a gauge, opened ones a counter."""
    metrics = Metrics()
    metrics.session_opened()
    metrics.session_opened()
    metrics.session_closed()
    page = samples(metrics)
    assert page[("headstart_sessions_open", "")] == 1
    assert page[("headstart_sessions_total", "")] == 2


def test_turns_and_their_tokens_are_counted() -> None:
    """By reason, and by what the tokens stood for."""
    metrics = Metrics()
    usage = Usage(input_audio=7, output=5, speculated=3, wasted=2)
    metrics.turn_finished(FinishReason.STOP, usage)
    metrics.turn_finished(FinishReason.CANCELLED, usage)
    page = samples(metrics)
    assert page[("headstart_turns_total", "stop")] == 1
    assert page[("headstart_turns_total", "cancelled")] == 1
    assert page[("headstart_tokens_total", "wasted")] == 4
    assert page[("headstart_tokens_total", "speculated")] == 6
    assert page[("headstart_tokens_total", "input_audio")] == 14


def test_buckets_do_not_depend_on_the_budget() -> None:
    """Servers with different settings can be added up, and what is above a budget can be read."""
    pages = [Metrics(latency_budget_ms=budget_ms) for budget_ms in (100, 800)]
    for metrics in pages:
        metrics.turn(record(900))
    buckets = [
        {
            float(labels.split(",")[1]): value
            for (name, labels), value in samples(metrics).items()
            if name == "headstart_turn_first_token_seconds_bucket"
        }
        for metrics in pages
    ]
    assert buckets[0] == buckets[1]
    assert sorted(buckets[0])[:-1] == list(names.SECONDS)
    assert (buckets[0][0.8], buckets[0][1.0]) == (0, 1)


def test_turns_over_the_budget_are_counted() -> None:
    """Of those that were measured."""
    metrics = Metrics()
    metrics.turn(record(790, "resp_1"))
    metrics.turn(record(900, "resp_2"))
    page = samples(metrics)
    assert page[("headstart_turns_over_budget_total", "")] == 1
    assert page[("headstart_turn_first_token_seconds_count", "requested")] == 2


def test_stages_that_are_not_known_are_not_observed() -> None:
    """None is no measurement: only known stages have a histogram."""
    metrics = Metrics()
    metrics.turn(record(10))
    stages = {
        labels for name, labels in samples(metrics) if name == "headstart_turn_stage_seconds_count"
    }
    assert stages == {"queue", "send"}


def test_hidden_work_is_observed_by_stage() -> None:
    """What was done before the request; waiting is no work, and what came later is not hidden."""
    metrics = Metrics()
    spans = (
        Span("prefill", -30 * MS, -10 * MS),
        Span("prefill", -5 * MS, 5 * MS),
        Span("queue", -9 * MS, -6 * MS),
        Span("decode_first", 5 * MS, 9 * MS),
    )
    metrics.turn(record(10, spans=spans))
    sums = {
        labels: value
        for (name, labels), value in samples(metrics).items()
        if name == "headstart_turn_hidden_work_seconds_sum"
    }
    assert sums == {"prefill": 0.025}


def test_turns_that_say_nothing_of_latency_stay_out_of_the_histograms() -> None:
    """A file fed faster than real time, and an answer that was cut."""
    metrics = Metrics()
    metrics.turn(record(900, "resp_1", realtime=False))
    metrics.turn(record(900, "resp_2", interrupted=True, reason="cancelled"))
    metrics.turn(dataclasses.replace(record(900, "resp_3"), budget=None))
    page = samples(metrics)
    assert page[("headstart_turns_over_budget_total", "")] == 0
    assert page[("headstart_turn_first_token_seconds_count", "requested")] == 0
    assert page[("headstart_interruptions_total", "answer")] == 1


def test_first_sound_counts_once_whenever_it_is_learnt() -> None:
    """With the first record or a later one; playout likewise; nothing is observed twice."""
    metrics = Metrics()
    early = record(300, "resp_1", voice=heard_at(500))
    late = record(300, "resp_2", voice=Voice(None, None, 0.0, None))
    metrics.turn(early)
    metrics.turn(late)
    late = dataclasses.replace(late, revision=2, voice=heard_at(700))
    metrics.turn(late)
    for revision in (3, 4):
        metrics.turn(
            dataclasses.replace(late, revision=revision, playout=Playout(750 * MS, "client"))
        )
    page = samples(metrics)
    assert page[("headstart_turn_first_token_seconds_count", "requested")] == 2
    assert page[("headstart_turn_first_sound_seconds_count", "requested")] == 2
    assert page[("headstart_turn_first_sound_seconds_sum", "requested")] == 1.2
    assert page[("headstart_turn_stage_seconds_sum", "playout")] == 0.05


def test_an_answer_cut_while_it_is_heard_is_one_interruption() -> None:
    """A later revision says so, and more of them say it again."""
    metrics = Metrics()
    whole = record(300)
    metrics.turn(whole)
    for revision in (2, 3):
        metrics.turn(dataclasses.replace(whole, revision=revision, interrupted=True))
    assert samples(metrics)[("headstart_interruptions_total", "playout")] == 1


def test_what_is_learnt_of_a_forgotten_turn_is_not_counted() -> None:
    """The newest turns are kept; else an old one would be counted again."""
    metrics = Metrics()
    for i in range(OPEN_TURNS_MAX + 1):
        metrics.turn(record(300, f"resp_{i}"))
    metrics.turn(dataclasses.replace(record(300, "resp_0"), revision=2, voice=heard_at(400)))
    page = samples(metrics)
    assert page[("headstart_turn_first_sound_seconds_count", "requested")] == 0


def test_exemplars_name_the_turn() -> None:
    """For who asks for OpenMetrics; the text format has none."""
    metrics = Metrics()
    metrics.turn(record(900, "resp_slow"))
    page, content_type = metrics.page().render(OPEN_METRICS)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    found = {
        (sample.name, sample.labels.get("le")): sample.exemplar.labels
        for family in open_metrics(page.decode())  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar
    }
    assert found[("headstart_turn_first_token_seconds_bucket", "1.0")] == {"turn": "resp_slow"}
    assert found[("headstart_turns_over_budget_total", None)] == {"turn": "resp_slow"}
    text, content_type = metrics.page().render("text/plain")
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert b"resp_slow" not in text


def test_chunks_and_audio_are_counted() -> None:
    """Latency, overruns, and what became of the audio."""
    metrics = Metrics()
    for latency_ms in (40.0, 600.0):
        chunk = Chunk("s", TurnRef(1), 0, 8000, {"encode": 25.0}, latency_ms, 1, 3)
        metrics.chunk(chunk, ChunkBudget.from_chunk(chunk))
    metrics.audio("received", 20.0)
    metrics.audio("late", 20.0)
    assert samples(metrics)[("headstart_chunk_latency_seconds_sum", "")] == 0.64
    behind = Chunk("s", TurnRef(1), 0, 8000, {"encode": 900.0}, 900.0, 1, 0)
    metrics.chunk(behind, ChunkBudget.from_chunk(behind))
    page = samples(metrics)
    assert page[("headstart_chunk_headroom_ratio_bucket", "0.0")] == 1
    assert page[("headstart_chunk_headroom_ratio_bucket", "0.9")] == 1
    assert page[("headstart_chunk_headroom_ratio_bucket", "0.95")] == 3
    assert page[("headstart_chunk_overruns_total", "")] == 2
    assert page[("headstart_rolled_back_tokens_total", "")] == 6
    assert page[("headstart_audio_seconds_total", "late")] == 0.02
    assert metrics.totals()["audio_ms"] == {"received": 20.0, "late": 20.0}


def stats(**more: Any) -> Stats:
    return replace(Stats(1, "x", 2, 30, 40, 500, 6, 7, level=Level.OFFLOADING), **more)


def test_the_engine_is_summed_up() -> None:
    """Its newest heartbeat, restarts, up or down."""
    metrics = Metrics()
    metrics.engine(
        stats(kv_blocks_cached=4, sessions_offloaded=3, offloaded_bytes=800, evicted_tokens=9)
    )
    metrics.engine_restarts.inc()
    metrics.engine_up.set(1)
    page = samples(metrics)
    blocks = {state: page[("headstart_kv_blocks", state)] for state in ("used", "cached", "free")}
    assert blocks == {"used": 30, "cached": 4, "free": 6}
    assert page[("headstart_kv_level", "")] == 2
    assert page[("headstart_kv_evicted_tokens_total", "")] == 9
    assert page[("headstart_sessions_offloaded", "")] == 3
    assert page[("headstart_kv_offloaded_bytes", "")] == 800
    assert page[("headstart_engine_rss_bytes", "")] == 500
    assert page[("headstart_engine_restarts_total", "")] == 1
    assert page[("headstart_engine_up", "")] == 1


def test_steps_are_histograms_and_those_of_another_build_are_left_out() -> None:
    """An engine with other buckets does not break the page."""
    metrics = Metrics()
    seconds = Counts([2, 1, *[0] * (len(STEP_SECONDS_LE) - 1)], 0.02)
    sessions = Counts([3] + [0] * len(STEP_SESSIONS_LE), 3.0)
    metrics.engine(
        stats(step_totals=StepTotals({"decode": seconds}, {"decode": Counts([1], 1.0)}, sessions))
    )
    page = samples(metrics)
    assert page[("headstart_engine_step_seconds_bucket", "0.005,decode")] == 2
    assert page[("headstart_engine_step_seconds_count", "decode")] == 3
    assert page[("headstart_engine_step_sessions_sum", "")] == 3
    assert not any(name == "headstart_engine_step_tokens_count" for name, _ in page)


def test_an_llm_server_is_summed_up_where_one_decodes() -> None:
    """With our own decoder the families are there, without samples."""
    metrics = Metrics()
    metrics.engine(stats())
    page = metrics.page().render()[0].decode()
    assert "# TYPE headstart_llm_requests_total counter" in page
    assert not any("_llm_" in name for name, _ in samples(metrics))
    totals = LlmServerTotals(
        requests={"warm_up": 7, "answer": 2},
        cancelled={"warm_up": 1},
        prompt_tokens={"warm_up": {"computed": 96, "cached": 480}, "answer": {"unknown": 70}},
        failures={"llm_busy": 2},
        retries=1,
    )
    metrics.engine(stats(llm_server=totals))
    page_of = samples(metrics)
    assert page_of[("headstart_llm_requests_total", "warm_up")] == 7
    assert page_of[("headstart_llm_requests_cancelled_total", "warm_up")] == 1
    assert page_of[("headstart_llm_prompt_tokens_total", "cached,warm_up")] == 480
    assert page_of[("headstart_llm_prompt_tokens_total", "unknown,answer")] == 70
    assert page_of[("headstart_llm_failures_total", "llm_busy")] == 2
    assert page_of[("headstart_llm_retries_total", "")] == 1


def test_error_codes_are_capped() -> None:
    """A peer that makes up codes cannot grow the page: the rest is `other`."""
    metrics = Metrics()
    for i in range(MAX_ERROR_CODES + 10):
        metrics.error(f"code_{i}")
    metrics.error("code_0")
    page = {labels: v for (name, labels), v in samples(metrics).items() if "errors_total" in name}
    assert len(page) == MAX_ERROR_CODES + 1
    assert (page["other"], page["code_0"]) == (10, 2)


def test_old_names_are_there_for_who_asks() -> None:
    """In ms, with buckets that end at the budget; without the setting none of them is."""
    old, new = Metrics(800, legacy=True), Metrics(800)
    for metrics in (old, new):
        metrics.turn(record(790, "resp_1"))
        metrics.turn(record(900, "resp_2"))
        chunk = Chunk("s", TurnRef(1), 0, 8000, {"encode": 25.0}, 40.0, 1, 3)
        metrics.chunk(chunk, ChunkBudget.from_chunk(chunk))
        metrics.audio("late", 20.0)
        metrics.engine(stats())
    page = samples(old)
    assert page[("headstart_ttft_ms_bucket", "requested,800.0")] == 1
    assert page[("headstart_ttft_ms_bucket", "requested,+Inf")] == 2
    assert page[("headstart_turn_stage_ms_count", "send")] == 2
    assert page[("headstart_chunk_latency_ms_sum", "")] == 40
    assert page[("headstart_audio_ms_total", "late")] == 20
    assert page[("headstart_kv_blocks_used", "")] == 30
    assert page[("headstart_kv_blocks", "")] == 40
    plain = samples(new)
    assert not any("_ms" in name for name, _ in plain)
    assert ("headstart_kv_blocks", "") not in plain
    assert plain.keys() < page.keys()


def test_no_metric_is_named_elsewhere() -> None:
    """Each name is in `names` alone, but for old ones and text for people."""
    home = {GATEWAY / "telemetry" / name for name in ("names.py", "legacy_metrics.py")}
    found = [
        f"{path.relative_to(GATEWAY)}: {node.value}"
        for path in GATEWAY.rglob("*.py")
        if path not in home
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and any(node.value.removesuffix("_total") == name for name in names.FAMILIES)
    ]
    assert found == []
    assert all(name.startswith("headstart_") for name in names.FAMILIES)
    assert not any(name.endswith(("_ms", "_percent")) for name in names.FAMILIES)


def test_totals_for_who_watches() -> None:
    """Sound and frames by what became of them; /metrics shows the same afterwards."""
    metrics = Metrics()
    metrics.audio("received", 40.5)
    metrics.frame("kept")
    assert metrics.totals() == {"audio_ms": {"received": 40.5}, "frames": {"kept": 1}}
    metrics.audio("received", 1)
    assert metrics.totals()["audio_ms"] == {"received": 41.5}
    assert samples(metrics)[("headstart_audio_seconds_total", "received")] == 0.0415
