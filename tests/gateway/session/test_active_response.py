"""The report of a response that ran."""

from __future__ import annotations

from headstart.engine import api
from tests.gateway.session_bench import SessionBench

ASKED = {"events": ["latency"]}


def test_a_report_tells_of_the_cache_and_of_what_was_wasted() -> None:
    """Every number that the engine gives has its key."""
    bench = SessionBench()
    bench.update(gateway=ASKED)
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, "Hi.", bench.now_ns))
    usage = api.Usage(input_text=5, cached=3, output=2, speculated=9, wasted=7)
    kv = api.KvStats(tokens=15, blocks=1, bytes=1500, bytes_per_token=100, adopted=3)
    stop = api.FinishReason.STOP
    bench.engine(api.Finished("sess_test", generation, stop, "Hi.", usage, kv))
    report = bench.last("gateway.latency.report")
    assert report["usage"]["speculated_tokens"] == 9
    assert report["usage"]["wasted_tokens"] == 7
    assert (report["kv"]["tokens"], report["kv"]["bytes"], report["kv"]["adopted"]) == (15, 1500, 3)


def test_what_never_spoke_is_not_reported() -> None:
    """There is no first token to count to."""
    bench = SessionBench()
    bench.update(gateway=ASKED)
    bench.client("response.create")
    bench.answer(reason=api.FinishReason.CANCELLED)
    assert not bench.of("gateway.latency.report")


def test_stamps_that_contradict_each_other_end_nothing() -> None:
    """The report has null for each number; it is counted, and the conversation goes on."""
    bench = SessionBench()
    bench.update(gateway={"events": ["latency", "chunks"]})
    bench.client("response.create")
    generation = bench.respond_command().generation
    impossible = (api.Span("mel", 2, 1),)
    bench.engine(api.Delta("sess_test", generation, "Hi.", bench.now_ns, impossible))
    bench.finish(generation, "Hi.")
    budget = bench.last("gateway.latency.report")["budget"]
    assert (budget["anchor"], budget["total_ms"], budget["over_budget"]) == (None, None, None)
    assert set(budget["stages_ms"].values()) == {None}
    bench.engine(api.Chunk("sess_test", api.TurnRef(1), 0, 0, {}, 5.0, 0, 0))
    assert not bench.of("gateway.chunk.report")
    assert 'errors_total{code="latency_stamps"} 2.0' in bench.metrics.page().render()[0].decode()
    bench.client("response.create")
    bench.answer("Again.")
    assert bench.last("gateway.latency.report")["budget"]["total_ms"] == 0
    assert set(budget) == set(bench.last("gateway.latency.report")["budget"])


def test_a_clock_that_goes_back_ends_nothing() -> None:
    """As when a machine was stopped and its clock set: the first token leaves before its turn."""
    bench = SessionBench()
    bench.now_ns = 10**9
    bench.client("response.create")
    bench.now_ns = 0
    bench.answer("Hi.")
    assert bench.last("response.done")["response"]["status"] == "completed"
