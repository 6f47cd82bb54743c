"""Turns reach a collector after they were heard; one that does not answer costs a log line."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import signal
import threading
import time

import pytest
from websockets.sync.client import connect

from headstart.gateway.errors import ConfigError
from headstart.gateway.telemetry.turn_record import Playout
from headstart.gateway.tracing.traces import ENDPOINT, PROTOCOL, Traces, from_environment
from headstart.gateway.tracing.turn_trace import TraceSpan
from tests.gateway.server.running import WAIT_S, ask, next_event, server
from tests.gateway.tracing.collector import attributes, collecting
from tests.gateway.tracing.test_turn_trace import MS, spoken


class Kept:
    """A sender that keeps what it is given, or holds the thread up."""

    def __init__(self) -> None:
        self.roots: list[TraceSpan] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.fails = False

    def send(self, root: TraceSpan, wall_minus_monotonic_ns: int) -> None:
        self.may_go_on.wait()
        if self.fails:
            raise RuntimeError("the SDK has a fault")
        self.roots.append(root)

    def close(self) -> None:
        self.may_go_on.wait()


async def test_a_turn_waits_until_it_was_heard() -> None:
    """One trace, of the newest revision; what comes later is too late."""
    kept = Kept()
    traces = Traces(lambda: kept, settle_s=0.05)
    traces.start()
    record = spoken(playout=None)
    traces.turn(record)
    heard = dataclasses.replace(record, revision=2, playout=Playout(1750 * MS, "client"))
    traces.turn(heard)
    await asyncio.sleep(0.3)
    traces.turn(dataclasses.replace(heard, revision=3))
    await traces.close()
    (root,) = kept.roots
    assert root.children[-1].name == "playout"


async def test_the_end_sends_what_waits() -> None:
    """A turn of the last seconds is not lost."""
    kept = Kept()
    traces = Traces(lambda: kept, settle_s=60)
    traces.start()
    traces.turn(spoken())
    await traces.close()
    assert len(kept.roots) == 1


async def test_a_full_queue_drops_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """The loop never waits for the thread, and the end is not held up either."""
    kept = Kept()
    kept.may_go_on.clear()
    traces = Traces(lambda: kept, settle_s=0, queued=2)
    traces.start()
    for number in range(10):
        traces.turn(dataclasses.replace(spoken(), response_id=f"resp_{number}"))
    await asyncio.sleep(0.2)
    assert traces.dropped >= 7
    assert len([r for r in caplog.records if "are dropped" in r.getMessage()]) == 1
    began_s = time.monotonic()
    await traces.close(0.1)
    assert time.monotonic() - began_s < 5
    kept.may_go_on.set()


async def test_a_fault_costs_one_trace() -> None:
    """The thread goes on."""
    kept = Kept()
    traces = Traces(lambda: kept, settle_s=0)
    traces.start()
    kept.fails = True
    traces.turn(spoken())
    await asyncio.sleep(0.2)
    kept.fails = False
    traces.turn(dataclasses.replace(spoken(), response_id="resp_2"))
    await traces.close()
    assert len(kept.roots) == 1


async def test_closing_what_never_began() -> None:
    """A server that fails to start."""
    await Traces(Kept).close()


def test_it_is_off_unless_a_collector_is_named() -> None:
    """And a protocol that is not spoken is an error at the start."""
    assert from_environment({}) is None
    assert from_environment({ENDPOINT: " "}) is None
    assert from_environment({ENDPOINT: "http://127.0.0.1:1"}) is not None
    with pytest.raises(ConfigError, match=r"expected http/protobuf .*got grpc"):
        from_environment({ENDPOINT: "http://127.0.0.1:1", PROTOCOL: "grpc"})


def test_without_the_extra_it_says_what_to_install(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server starts all the same."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert from_environment({ENDPOINT: "http://127.0.0.1:1"}) is None
    assert "headstart[otel]" in caplog.text


def test_a_real_server_sends_one_trace_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a collector, by OpenTelemetry's own SDK; the rest when the server ends."""
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        before_ns = time.time_ns()
        with server() as running:
            running.until_ready()
            with connect(running.url.replace("http", "ws") + "/v1/realtime") as socket:
                asked = []
                for _ in range(2):
                    ask(socket)
                    asked.append(next_event(socket, "response.done")["response"]["id"])
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(WAIT_S) == 0
        traces = collector.traces()
        assert len(traces) == 2
        answered = []
        for spans in traces.values():
            (root,) = (span for span in spans if not span.parent_span_id)
            assert root.name == "turn"
            answered.append(attributes(root)["gen_ai.response.id"])
            by_id = {span.span_id: span for span in spans}
            parents = {s.name: by_id[s.parent_span_id].name for s in spans if s.parent_span_id}
            assert parents["realtime_inference fake"] == "turn"
            assert parents["decode_first"] == "realtime_inference fake"
            for span in spans:
                assert before_ns <= span.start_time_unix_nano <= span.end_time_unix_nano
                assert span.end_time_unix_nano <= time.time_ns()
        assert sorted(answered) == sorted(asked)
        assert collector.resources[0]["service.name"] == "headstart"


@pytest.mark.parametrize("dead", ["refused", "failing"])
def test_a_dead_collector_costs_one_log_line(
    dead: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The sessions answer as ever, the server ends in time, and no batch is logged for itself."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with collecting() as collector:
        collector.status = 400
        if dead == "failing":
            monkeypatch.setenv(ENDPOINT, collector.url)
        else:
            monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
        with server() as running:
            running.until_ready()
            with connect(running.url.replace("http", "ws") + "/v1/realtime") as socket:
                for _ in range(3):
                    ask(socket)
                    done = next_event(socket, "response.done")
                    assert done["response"]["status"] == "completed"
                time.sleep(4)
                ask(socket)
                next_event(socket, "response.done")
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(WAIT_S) == 0
            assert running.process.stderr is not None
            said = running.process.stderr.read().splitlines()
            lines = [line for line in said if re.search(r"traces|opentelemetry|urllib3", line)]
        assert len(lines) == 1, lines
        assert "takes no traces" in lines[0]
        assert (collector.requests > 0) == (dead == "failing")


def test_a_collector_that_comes_back_gets_what_follows(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both changes are logged, once each."""
    from headstart.gateway.tracing.otlp import OtlpSender
    from headstart.gateway.tracing.turn_trace import trace_of

    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    caplog.set_level(logging.INFO, logger="headstart.traces")
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        collector.status = 400
        sender = OtlpSender(collector.url)

        def send_until(condition: str) -> None:
            end_s = time.monotonic() + WAIT_S
            while condition not in caplog.text:
                assert time.monotonic() < end_s, "it was never logged"
                sender.send(trace_of(spoken()), 0)
                time.sleep(0.1)

        send_until("takes no traces")
        assert collector.spans == []
        collector.status = 200
        send_until("takes traces again")
        sender.close()
        assert collector.spans
        assert len([r for r in caplog.records if r.name == "headstart.traces"]) == 2
