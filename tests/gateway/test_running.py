"""The report of a response that ran."""

from __future__ import annotations

from engine import api
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
