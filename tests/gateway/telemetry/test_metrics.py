"""The Prometheus page shows what happened, in a registry of its own."""

from __future__ import annotations

from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from headstart.engine.api import Chunk, FinishReason, Level, Stats, TurnRef, Usage
from headstart.gateway.telemetry.latency import ChunkBudget, TurnBudget, TurnStamps
from headstart.gateway.telemetry.metrics import MAX_ERROR_CODES, Metrics

MS = 1_000_000


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    """(name, label values joined by commas) -> value, as a scraper reads the page."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def budget(total_ms: int, realtime: bool = True) -> TurnBudget:
    return TurnBudget.from_stamps(
        TurnStamps(
            sent_ns=total_ms * MS,
            requested_ns=0,
            first_delta_received_ns=total_ms * MS,
            realtime=realtime,
        )
    )


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


def test_the_last_bucket_ends_at_the_budget() -> None:
    """Turns slower than it lie in +Inf alone, and are counted by name as well."""
    metrics = Metrics(latency_budget_ms=800)
    metrics.turn_budget(budget(790))
    metrics.turn_budget(budget(900))
    page = samples(metrics)
    buckets = {
        labels.split(",")[1]: value
        for (name, labels), value in page.items()
        if name == "headstart_ttft_ms_bucket"
    }
    assert list(buckets)[-2:] == ["800.0", "+Inf"]
    assert (buckets["800.0"], buckets["+Inf"]) == (1, 2)
    assert page[("headstart_turns_over_budget_total", "")] == 1


def test_stages_that_are_not_known_are_not_observed() -> None:
    """None is no measurement: only known stages have a histogram."""
    metrics = Metrics()
    metrics.turn_budget(budget(10))
    stages = {
        labels for name, labels in samples(metrics) if name == "headstart_turn_stage_ms_count"
    }
    assert stages == {"queue", "send"}


def test_fast_feeds_stay_out_of_the_histograms() -> None:
    """A file fed faster than real time says nothing about latency."""
    metrics = Metrics()
    metrics.turn_budget(budget(900, realtime=False))
    page = samples(metrics)
    assert page[("headstart_turns_over_budget_total", "")] == 0
    assert not any(name == "headstart_ttft_ms_count" for name, _ in page)


def test_chunks_and_audio_are_counted() -> None:
    """Latency, overruns, and what became of the audio."""
    metrics = Metrics()
    for latency_ms in (40.0, 600.0):
        chunk = Chunk("s", TurnRef(1), 0, 8000, {"encode": 20.0}, latency_ms, 1, 0)
        metrics.chunk(ChunkBudget.from_chunk(chunk))
    metrics.audio("received", 20.0)
    metrics.audio("late", 20.0)
    page = samples(metrics)
    assert page[("headstart_chunk_latency_ms_count", "")] == 2
    assert page[("headstart_chunk_overruns_total", "")] == 1
    assert page[("headstart_audio_ms_total", "late")] == 20


def test_the_engine_is_summed_up() -> None:
    """Its newest heartbeat, restarts, up or down."""
    metrics = Metrics()
    stats = Stats(1, "x", 2, 30, 40, 500, 6, 7, level=Level.OFFLOADING)
    metrics.engine(replace(stats, sessions_offloaded=3, offloaded_bytes=800))
    metrics.engine_restarts.inc()
    metrics.engine_up.set(1)
    page = samples(metrics)
    assert page[("headstart_kv_blocks_used", "")] == 30
    assert page[("headstart_kv_blocks", "")] == 40
    assert page[("headstart_kv_level", "")] == 2
    assert page[("headstart_sessions_offloaded", "")] == 3
    assert page[("headstart_kv_offloaded_bytes", "")] == 800
    assert page[("headstart_engine_rss_bytes", "")] == 500
    assert page[("headstart_engine_restarts_total", "")] == 1
    assert page[("headstart_engine_up", "")] == 1


def test_error_codes_are_capped() -> None:
    """A peer that makes up codes cannot grow the page: the rest is `other`."""
    metrics = Metrics()
    for i in range(MAX_ERROR_CODES + 10):
        metrics.error(f"code_{i}")
    metrics.error("code_0")
    page = {labels: v for (name, labels), v in samples(metrics).items() if "errors_total" in name}
    assert len(page) == MAX_ERROR_CODES + 1
    assert (page["other"], page["code_0"]) == (10, 2)


def test_totals_for_who_watches() -> None:
    """Sound and frames by what became of them; /metrics shows the same afterwards."""
    metrics = Metrics()
    metrics.audio("received", 40.5)
    metrics.frame("kept")
    assert metrics.totals() == {"audio_ms": {"received": 40.5}, "frames": {"kept": 1}}
    metrics.audio("received", 1)
    assert metrics.totals()["audio_ms"] == {"received": 41.5}
    assert 'headstart_audio_ms_total{fate="received"} 41.5' in metrics.render().decode()
