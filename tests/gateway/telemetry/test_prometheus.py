"""Real `prometheus` and `promtool` read a real server's page and evaluate the committed rules."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.sync.client import connect

from headstart.gateway.telemetry import alerts, grafana, monitoring
from tests.debian_tools import PROMETHEUS
from tests.gateway.server.running import Server, ask, next_event, server, until

RULES = "headstart-alerts.yml"
STEPS = 60  # of 15 s, in virtual time

Json = dict[str, Any]


@pytest.fixture(scope="module")
def tools() -> tuple[Path, Path]:
    prometheus, promtool = PROMETHEUS.ensure()
    return prometheus, promtool


@pytest.fixture(scope="module")
def serving() -> Iterator[Server]:
    """A server with the fake engine, at which every turn is over its budget."""
    with server("--set", "latency_budget_ms=1") as running:
        running.until_ready()
        yield running


@contextlib.contextmanager
def prometheus(binary: Path, folder: Path, target: str) -> Iterator[str]:
    """One that scrapes `target` and evaluates the rules each second; its URL."""
    rules = monitoring.files()[RULES].replace("interval: 5s", "interval: 1s")
    (folder / RULES).write_text(rules)
    config = monitoring.files()["prometheus.yml"]
    config = config.replace("127.0.0.1:8080", target).replace("_interval: 15s", "_interval: 1s")
    (folder / "prometheus.yml").write_text(config)
    argv = [str(binary), "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    argv += ["--web.listen-address=127.0.0.1:0", "--enable-feature=exemplar-storage"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(argv, cwd=folder, stdout=log, stderr=log) as process,
    ):
        try:
            yield _url_of(process, folder / "log")
        finally:
            process.terminate()


def _url_of(process: subprocess.Popen[bytes], log: Path) -> str:
    end_s = time.monotonic() + 60
    while time.monotonic() < end_s:
        assert process.poll() is None, log.read_text()
        listening = [
            c.laddr.port
            for c in psutil.Process(process.pid).net_connections("tcp")
            if c.status == psutil.CONN_LISTEN
        ]
        with contextlib.suppress(httpx.TransportError):
            url = f"http://127.0.0.1:{listening[0]}" if listening else ""
            if url and httpx.get(f"{url}/-/ready").status_code == 200:
                return url
        time.sleep(0.1)
    raise AssertionError(f"prometheus did not come up:\n{log.read_text()}")


def data_of(url: str, **params: str) -> Any:
    answer = httpx.get(url, params=params, timeout=30).json()
    assert answer["status"] == "success", answer
    return answer["data"]


def turn(socket: Any) -> str:
    ask(socket)
    name: str = next_event(socket, "response.done")["response"]["id"]
    return name


def test_a_real_page_has_every_queried_metric(serving: Server, tools: tuple[Path, Path]) -> None:
    """Those of the Grafana dashboard and of the rules; and promtool finds no fault in the page."""
    page = httpx.get(f"{serving.url}/metrics").text
    there = set()
    for family in text_string_to_metric_families(page):
        parts = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
        there |= {family.name + part for part in parts.get(family.type, ("",))}
    panels = [panel for panel in grafana.dashboard()["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    queries += [alert.query for alert in alerts.ALERTS]
    queried = {name for query in queries for name in re.findall(r"headstart_\w+", query)}
    assert queried - there == set()
    # promtool knows no `_created`, which Prometheus itself reads with OpenMetrics.
    plain = re.sub(r"(?m)^.*headstart_\w+_created.*\n", "", page)
    checked = subprocess.run(
        [tools[1], "check", "metrics"], input=plain, capture_output=True, text=True, check=False
    )
    assert (checked.stdout + checked.stderr, checked.returncode) == ("", 0)


def test_prometheus_scrapes_a_server_and_evaluates_the_rules(
    serving: Server, tools: tuple[Path, Path], tmp_path: Path
) -> None:
    """Every turn is over a budget of 1 ms, so that alert fires and others do not; the histogram's
    exemplar is the turn; every query of the dashboard is one that Prometheus takes."""
    target = serving.url.removeprefix("http://")
    with (
        prometheus(tools[0], tmp_path, target) as url,
        connect(serving.url.replace("http", "ws") + "/v1/realtime") as socket,
    ):
        query = f"{url}/api/v1/query"
        until(lambda: data_of(query, query="headstart_engine_up == 1")["result"])
        turns = [turn(socket) for _ in range(3)]
        counted = "sum(headstart_turn_first_token_seconds_count)"
        until(lambda: data_of(query, query=f"{counted} >= 3")["result"])

        def fired() -> list[str]:
            found = data_of(f"{url}/api/v1/alerts")["alerts"]
            return sorted(a["labels"]["severity"] for a in found if a["state"] == "firing")

        until(lambda: fired() == ["critical", "warning"])
        (group,) = data_of(f"{url}/api/v1/rules")["groups"]
        assert {rule["health"] for rule in group["rules"]} == {"ok"}
        assert len(group["rules"]) == 2 * len(alerts.ALERTS)
        firing = {rule["name"] for rule in group["rules"] if rule["state"] == "firing"}
        assert firing == {"HeadstartTurnsOverBudget"}

        exemplars = data_of(
            f"{url}/api/v1/query_exemplars",
            query="headstart_turn_first_token_seconds_bucket",
            start=str(time.time() - 600),
            end=str(time.time() + 60),
        )
        named = {e["labels"]["turn"] for series in exemplars for e in series["exemplars"]}
        assert named
        assert named <= set(turns)

        (there,) = data_of(f"{url}/api/v1/targets")["activeTargets"]
        assert there["health"] == "up"
        for panel in grafana.dashboard()["panels"]:
            for one in panel.get("targets", ()):
                asked = one["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
                result = data_of(query, query=asked)
                if panel["title"] == "First token":
                    assert result["result"], asked


# The inputs of each rule, three times: all is well, a warning, critical.
CASES: dict[str, list[dict[str, str]]] = {
    "HeadstartTurnsOverBudget": [
        {
            "headstart_turns_over_budget_total": f"0+{over}x{STEPS}",
            'headstart_turn_first_token_seconds_count{anchor="captured"}': f"0+100x{STEPS}",
        }
        for over in (4, 10, 30)
    ],
    "HeadstartChunkOverruns": [
        {
            "headstart_chunk_overruns_total": f"0+{over}x{STEPS}",
            "headstart_chunk_latency_seconds_count": f"0+1000x{STEPS}",
        }
        for over in (5, 20, 60)
    ],
    "HeadstartLowHeadroom": [
        {
            'headstart_chunk_headroom_ratio_bucket{le="0.0"}': f"0+{none}x{STEPS}",
            'headstart_chunk_headroom_ratio_bucket{le="0.1"}': f"0+{little}x{STEPS}",
            'headstart_chunk_headroom_ratio_bucket{le="0.3"}': f"0+{little}x{STEPS}",
            'headstart_chunk_headroom_ratio_bucket{le="0.5"}': f"0+100x{STEPS}",
            'headstart_chunk_headroom_ratio_bucket{le="+Inf"}': f"0+100x{STEPS}",
        }
        for none, little in ((0, 0), (0, 50), (50, 50))
    ],
    "HeadstartKvCacheFull": [
        {
            'headstart_kv_blocks{state="used"}': f"{used}x{STEPS}",
            'headstart_kv_blocks{state="cached"}': f"0x{STEPS}",
            'headstart_kv_blocks{state="free"}': f"{100 - used}x{STEPS}",
        }
        for used in (80, 90, 100)
    ],
    "HeadstartKvPressure": [{"headstart_kv_level": f"{level}x{STEPS}"} for level in (1, 2, 3)],
    "HeadstartRtpLoss": [
        {
            'headstart_rtp_audio_packets_total{fate="lost"}': f"0+{lost}x{STEPS}",
            'headstart_rtp_audio_packets_total{fate="received"}': f"0+{1000 - lost}x{STEPS}",
            'headstart_rtp_audio_packets_total{fate="late"}': f"0x{STEPS}",
        }
        for lost in (10, 30, 60)
    ],
    "HeadstartLoopLag": [
        {
            'headstart_loop_lag_seconds_bucket{le="0.01"}': f"0+{quick}x{STEPS}",
            'headstart_loop_lag_seconds_bucket{le="0.04"}': f"0+{slow}x{STEPS}",
            'headstart_loop_lag_seconds_bucket{le="0.1"}': f"0+100x{STEPS}",
            'headstart_loop_lag_seconds_bucket{le="+Inf"}': f"0+100x{STEPS}",
        }
        for quick, slow in ((100, 100), (50, 100), (50, 60))
    ],
    "HeadstartEngineRestarts": [
        {"headstart_engine_restarts_total": f"0x{STEPS - 10} {restarts}x9"}
        for restarts in (0, 1, 2)
    ],
    "HeadstartEngineDown": [
        {"headstart_engine_up": "1x180"},
        {"headstart_engine_up": "1x178 0x1"},  # for 5 s
        {"headstart_engine_up": "1x170 0x9"},
    ],
}


def test_each_alert_fires_where_it_should(tools: tuple[Path, Path], tmp_path: Path) -> None:
    """In promtool's virtual time: below both levels nothing, between them a warning, above both
    also the critical one."""
    assert CASES.keys() == {alert.name for alert in alerts.ALERTS}
    (tmp_path / RULES).write_text(monitoring.files()[RULES])
    tests = [
        _case(name, case, level)
        for name, cases in CASES.items()
        for level, case in enumerate(cases)
    ]
    file = {"rule_files": [RULES], "evaluation_interval": "5s", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(file))
    done = subprocess.run(
        [tools[1], "test", "rules", "tests.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _case(name: str, case: dict[str, str], level: int) -> Json:
    """One of promtool's tests: after a quarter of an hour, which severities fire."""
    severities = ("warning", "critical")[:level]
    firing = f'alertname="{name}",alertstate="firing"'
    series = []
    for metric, values in case.items():
        labels = 'job="headstart",instance="one:8080"'
        bare, _, own = metric.rstrip("}").partition("{")
        series.append({"series": f"{bare}{{{labels}{',' + own if own else ''}}}", "values": values})
    return {
        "name": f"{name} {level}",
        "interval": "5s" if name == "HeadstartEngineDown" else "15s",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": f"sum by (severity) (ALERTS{{{firing}}})",
                "eval_time": "15m",
                "exp_samples": [
                    {"labels": f'{{severity="{severity}"}}', "value": 1} for severity in severities
                ],
            }
        ],
    }
