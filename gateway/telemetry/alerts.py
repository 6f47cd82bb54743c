"""Prometheus rules over the metrics of `names`, with the numbers of `thresholds.toml`.

Each threshold yields two alerts: severity warning and severity critical. A query's value has the
threshold's own unit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from headstart.gateway.telemetry import names
from headstart.gateway.telemetry.names import Family
from headstart.gateway.telemetry.thresholds import THRESHOLDS, Threshold

WINDOW = "5m"
BY = "job, instance"
HEAD = """\
# Made by `python -m headstart.gateway.telemetry.monitoring`: change thresholds.toml, not this file.
groups:
  - name: headstart
    interval: 5s
    rules:
"""


@dataclass(frozen=True, slots=True)
class Alert:
    """`query`: in the unit of the threshold. `held`: for so long; None: at once. `unit`: behind the
    value in the description."""

    threshold: str
    name: str
    query: str
    summary: str
    advice: str
    held: str | None = None
    unit: str = ""


def rate(family: Family, part: str = "", labels: str = "", by: str = BY) -> str:
    """The sum of a series' rates a second."""
    name = f"{family.name}_{part}" if part else family.series[0]
    return f"sum by ({by}) (rate({name}{labels}[{WINDOW}]))"


def quantile(share: float, family: Family) -> str:
    return f"histogram_quantile({share}, {rate(family, 'bucket', by=f'{BY}, le')})"


def _alerts() -> tuple[Alert, ...]:
    lost, received, late = (
        rate(names.RTP_PACKETS, labels=f'{{fate="{fate}"}}')
        for fate in ("lost", "received", "late")
    )
    blocks = names.KV_BLOCKS.name
    return (
        Alert(
            "turns_over_budget_share",
            "HeadstartTurnsOverBudget",
            f"{rate(names.OVER_BUDGET)} / {rate(names.FIRST_TOKEN, 'count')}",
            "Turns are slower than the latency budget",
            "The dashboard's percentiles show which stage grew.",
        ),
        Alert(
            "chunk_overrun_share",
            "HeadstartChunkOverruns",
            f"{rate(names.CHUNK_OVERRUNS)} / {rate(names.CHUNK_LATENCY, 'count')}",
            "Chunks of speech are not done when the next one is there",
            "The server has more sessions than it keeps up with: lower max_sessions.",
        ),
        Alert(
            "headroom_p5_percent",
            "HeadstartLowHeadroom",
            f"100 * {quantile(0.05, names.CHUNK_HEADROOM)}",
            "Chunks of speech leave hardly any time over",
            "The server has about as many sessions as it keeps up with.",
            unit=" %",
        ),
        Alert(
            "kv_share",
            "HeadstartKvCacheFull",
            f'sum by ({BY}) ({blocks}{{state="used"}}) / sum by ({BY}) ({blocks}{{state!=""}})',
            "The KV cache is nearly full",
            "Raise kv_pool_mib, or lower max_sessions.",
            held="1m",
        ),
        Alert(
            "kv_level",
            "HeadstartKvPressure",
            f"max by ({BY}) ({names.KV_LEVEL.name})",
            "Sessions are offloaded (2) or refused (3) because the KV cache is full",
            "Raise kv_pool_mib, or lower max_sessions.",
            held="1m",
        ),
        Alert(
            "rtp_lost_share",
            "HeadstartRtpLoss",
            f"{lost} / ({lost} + {received} - {late})",
            "Packets of calls are lost",
            "The network between clients and server, or a host that is too busy to read them.",
        ),
        Alert(
            "loop_lag_p99_ms",
            "HeadstartLoopLag",
            f"1000 * {quantile(0.99, names.LOOP_LAG)}",
            "The gateway's event loop runs late",
            "Everybody waits for it: see the gateway's share of a core and the host's load.",
            unit=" ms",
        ),
        Alert(
            "engine_restarts",
            "HeadstartEngineRestarts",
            f"round(increase({names.ENGINE_RESTARTS.series[0]}[{WINDOW}]))",
            "The engine was started again",
            "Its log says how it ended.",
        ),
        Alert(
            "engine_down_s",
            "HeadstartEngineDown",
            f"{names.ENGINE_UP.name} == 0",
            "The engine takes no work",
            "Its log and /healthz say why.",
        ),
    )


ALERTS = _alerts()


def rules() -> str:
    """The file for Prometheus, as YAML."""
    parts = [HEAD]
    for alert in ALERTS:
        threshold = THRESHOLDS[alert.threshold]
        for severity, limit in (("warning", threshold.warn), ("critical", threshold.bad)):
            parts.append(_rule(alert, threshold, severity, limit))
    return "".join(parts)


def _rule(alert: Alert, threshold: Threshold, severity: str, limit: float) -> str:
    held, condition = alert.held, f"{alert.query} {'<=' if threshold.lower_is_worse else '>='} "
    condition += f"{limit:g}"
    if alert.threshold == "engine_down_s":
        held, condition = f"{limit:g}s", alert.query
    lines = [f"      - alert: {alert.name}", f"        expr: {json.dumps(condition)}"]
    lines += [f"        for: {held}"] if held else []
    value = "{{ $value | humanizePercentage }}"
    if not alert.threshold.endswith("_share"):
        value = "{{ $value | humanize }}" + alert.unit
    where = "{{ $labels.instance }}"
    lines += [
        "        labels:",
        f"          severity: {severity}",
        "        annotations:",
        f"          summary: {json.dumps(alert.summary)}",
        f"          description: {json.dumps(f'{where}: {value}. {alert.advice}')}",
    ]
    return "\n".join(lines) + "\n"
