"""A Grafana dashboard over the metrics of `names`: overview, turn stages, keeping up, engine and KV
cache, LLM server, calls. JSON of Grafana's dashboard schema, to be imported or provisioned.

Timings have exemplars, which link to the turn on the server's own dashboard; tiles are coloured by
`thresholds.toml`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headstart.gateway.telemetry import names
from headstart.gateway.telemetry.names import Family
from headstart.gateway.telemetry.thresholds import THRESHOLDS, Threshold

Json = dict[str, Any]

SCHEMA_VERSION = 39
COLUMNS = 24
TILE_SIZE = (3, 4)
PANEL_SIZE = (8, 8)
ONLY = 'instance=~"$instance"'
TURN_LINK = {
    "title": "The turn on its server's dashboard",
    "url": "${server}/dashboard/#turn=${__value.raw}",
    "targetBlank": True,
}
PAGE_LINK = {
    "title": "The server's dashboard",
    "url": "${server}/dashboard/",
    "targetBlank": True,
}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries`: (PromQL, legend). `tile`: one number in place of a chart, coloured by a threshold
    if one is named. `more`: what else Grafana has for the kind."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    what: str = ""
    tile: bool = False
    threshold: Threshold | None = None
    exemplars: bool = False
    stacked: bool = False
    more: Json = field(default_factory=dict)


def rate(family: Family, part: str = "", labels: str = "", by: str = "") -> str:
    """The sum of a series' rates a second."""
    name = f"{family.name}_{part}" if part else family.series[0]
    selected = f"{ONLY},{labels}" if labels else ONLY
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({name}{{{selected}}}[$__rate_interval]))"


def quantile(share: float, family: Family, by: str = "") -> str:
    groups = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, {rate(family, 'bucket', by=groups)})"


def mean(family: Family, by: str = "") -> str:
    return f"{rate(family, 'sum', by=by)} / {rate(family, 'count', by=by)}"


def now(family: Family, labels: str = "", by: str = "", how: str = "sum") -> str:
    """A gauge over all servers."""
    selected = f"{ONLY},{labels}" if labels else ONLY
    return f"{how}{f' by ({by})' if by else ''} ({family.name}{{{selected}}})"


def spread(family: Family) -> tuple[tuple[str, str], ...]:
    return tuple((quantile(share, family), f"p{share * 100:g}") for share in (0.5, 0.95, 0.99))


def each(family: Family, by: str, share: float = 0.95) -> tuple[tuple[str, str], ...]:
    return ((quantile(share, family, by), f"{{{{{by}}}}}"),)


def counts(family: Family, by: str = "", legend: str = "") -> tuple[str, str]:
    return rate(family, by=by), legend or f"{{{{{by}}}}}"


def _percent(threshold: Threshold) -> Threshold:
    """A threshold on headroom in percent, as a ratio."""
    return Threshold(threshold.warn / 100, threshold.bad / 100)


def _overview() -> list[Panel]:
    over = f"{rate(names.OVER_BUDGET)} / {rate(names.FIRST_TOKEN, 'count')}"
    used, blocks = now(names.KV_BLOCKS, 'state="used"'), now(names.KV_BLOCKS, 'state!=""')
    lost, received, late = (
        rate(names.RTP_PACKETS, labels=f'fate="{fate}"') for fate in ("lost", "received", "late")
    )
    return [
        Panel("Sessions", ((now(names.SESSIONS_OPEN), ""),), tile=True),
        Panel("First token p95", ((quantile(0.95, names.FIRST_TOKEN), ""),), "s", tile=True),
        Panel("First sound p95", ((quantile(0.95, names.FIRST_SOUND), ""),), "s", tile=True),
        Panel(
            "Over budget",
            ((over, ""),),
            "percentunit",
            tile=True,
            threshold=THRESHOLDS["turns_over_budget_share"],
        ),
        Panel(
            "Headroom p5",
            ((quantile(0.05, names.CHUNK_HEADROOM), ""),),
            "percentunit",
            tile=True,
            threshold=_percent(THRESHOLDS["headroom_p5_percent"]),
        ),
        Panel(
            "KV cache",
            ((f"{used} / {blocks}", ""),),
            "percentunit",
            tile=True,
            threshold=THRESHOLDS["kv_share"],
        ),
        Panel(
            "RTP loss",
            ((f"{lost} / ({lost} + {received} - {late})", ""),),
            "percentunit",
            tile=True,
            threshold=THRESHOLDS["rtp_lost_share"],
        ),
        Panel("Errors a minute", ((f"60 * {rate(names.ERRORS)}", ""),), tile=True),
        Panel(
            "First token",
            spread(names.FIRST_TOKEN),
            "s",
            "From the last sample of speech to the first token sent.",
            exemplars=True,
        ),
        Panel(
            "First sound",
            spread(names.FIRST_SOUND),
            "s",
            "From the last sample of speech to the first sound sent.",
            exemplars=True,
        ),
        Panel("Turns by their end", (counts(names.TURNS, "reason"),), "ops", stacked=True),
        Panel("Interruptions", (counts(names.INTERRUPTIONS, "kind"),), "ops", stacked=True),
        Panel("Errors by code", (counts(names.ERRORS, "code"),), "ops", stacked=True),
        Panel(
            "Sessions refused and resumed",
            (
                (rate(names.SESSIONS_REFUSED, by="by"), "refused by {{by}}"),
                (rate(names.RESUMES, by="outcome"), "resume {{outcome}}"),
            ),
            "ops",
        ),
    ]


def _stages() -> list[Panel]:
    return [
        Panel(
            "A turn's wait by stage, mean",
            ((mean(names.TURN_STAGE, "stage"), "{{stage}}"),),
            "s",
            "Means of the turns that have the stage: up to the first token they add up.",
            stacked=True,
        ),
        Panel("Stages, p95", each(names.TURN_STAGE, "stage"), "s", exemplars=True),
        Panel(
            "Work hidden under speech, mean",
            ((mean(names.HIDDEN_WORK, "stage"), "{{stage}}"),),
            "s",
            "Done before the end of speech was known: nobody waited for it.",
            stacked=True,
        ),
        Panel("By anchor, p95", each(names.FIRST_TOKEN, "anchor"), "s", exemplars=True),
        Panel("Tokens", (counts(names.TOKENS, "kind"),), "ops"),
        Panel(
            "Speculation",
            (
                counts(names.SPECULATED, "fate"),
                (rate(names.ROLLED_BACK), "rolled back"),
            ),
            "ops",
        ),
    ]


def _keeping_up() -> list[Panel]:
    return [
        Panel("Chunk latency", spread(names.CHUNK_LATENCY), "s"),
        Panel(
            "Headroom of chunks",
            ((quantile(0.05, names.CHUNK_HEADROOM), "p5"), (mean(names.CHUNK_HEADROOM), "mean")),
            "percentunit",
        ),
        Panel(
            "Chunk overruns",
            ((f"{rate(names.CHUNK_OVERRUNS)} / {rate(names.CHUNK_LATENCY, 'count')}", "share"),),
            "percentunit",
        ),
        Panel("Event loop lag", spread(names.LOOP_LAG), "s"),
        Panel("Audio by fate", (counts(names.AUDIO, "fate"),), "s", "Seconds of sound a second."),
        Panel("Frames by fate", (counts(names.FRAMES, "fate"),), "ops"),
    ]


def _engine() -> list[Panel]:
    return [
        Panel("Step duration, p95", each(names.ENGINE_STEP, "phase"), "s"),
        Panel("Steps", ((rate(names.ENGINE_STEP, "count", by="phase"), "{{phase}}"),), "ops"),
        Panel(
            "Tokens a second",
            ((rate(names.ENGINE_STEP_TOKENS, "sum", by="phase"), "{{phase}}"),),
            "ops",
        ),
        Panel("Sessions a step, mean", ((mean(names.ENGINE_STEP_SESSIONS), "sessions"),)),
        Panel(
            "KV blocks",
            ((now(names.KV_BLOCKS, 'state!=""', "state"), "{{state}}"),),
            stacked=True,
        ),
        Panel("KV tokens", ((now(names.KV_TOKENS, by="modality"), "{{modality}}"),), stacked=True),
        Panel(
            "KV level",
            ((now(names.KV_LEVEL, by="instance", how="max"), "{{instance}}"),),
            what=names.KV_LEVEL.help,
            threshold=THRESHOLDS["kv_level"],
        ),
        Panel(
            "Evicted, offloaded, returned",
            (
                counts(names.KV_EVICTED, legend="tokens evicted"),
                counts(names.KV_OFFLOADS, legend="sessions offloaded"),
                counts(names.KV_RETURNS, legend="sessions returned"),
            ),
            "ops",
        ),
        Panel(
            "Engine up, restarts",
            (
                (now(names.ENGINE_UP, by="instance"), "up {{instance}}"),
                (f"round(increase({names.ENGINE_RESTARTS.series[0]}{{{ONLY}}}[5m]))", "restarts"),
            ),
        ),
        Panel(
            "Memory",
            (
                (now(names.ENGINE_RSS), "engine"),
                (now(names.KV_OFFLOADED_BYTES), "offloaded K/V"),
            ),
            "bytes",
        ),
    ]


def _llm_server() -> list[Panel]:
    """Empty panels with our own decoder."""
    return [
        Panel("Requests", (counts(names.LLM_REQUESTS, "kind"),), "ops", stacked=True),
        Panel(
            "Prompt tokens computed, cached",
            ((rate(names.LLM_PROMPT_TOKENS, by="kind, fate"), "{{kind}} {{fate}}"),),
            "ops",
            "Tokens a second; unknown: the server did not tell, or the request was cancelled.",
            stacked=True,
        ),
        Panel("Requests cancelled", (counts(names.LLM_CANCELLED, "kind"),), "ops", stacked=True),
        Panel(
            "Failures by code, retries",
            (counts(names.LLM_FAILURES, "code"), counts(names.LLM_RETRIES, legend="sent again")),
            "ops",
        ),
    ]


def _calls() -> list[Panel]:
    concealed = rate(names.RTP_SECONDS, labels='kind="concealed"')
    share = f"{concealed} / {rate(names.RTP_SECONDS)}"
    return [
        Panel("Audio packets by fate", (counts(names.RTP_PACKETS, "fate"),), "ops"),
        Panel("Concealed share", ((share, "share"),), "percentunit"),
        Panel("Jitter", spread(names.RTP_JITTER), "s"),
        Panel("Round trip", spread(names.RTP_ROUND_TRIP), "s"),
        Panel("Pauses", (counts(names.RTP_PAUSES, "kind"),), "ops"),
        Panel("Calls", ((now(names.CALLS_OPEN), "open"), counts(names.CALLS, "end"))),
    ]


ROWS = (
    ("Overview", _overview),
    ("Turn stages", _stages),
    ("Keeping up", _keeping_up),
    ("Engine and KV cache", _engine),
    ("LLM server", _llm_server),
    ("Calls", _calls),
)


def dashboard() -> Json:
    """The whole of it."""
    return {
        "uid": "headstart",
        "title": "headstart",
        "description": "Latency of turns, and what the server does about it",
        "tags": ["headstart"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "links": [
            {
                "title": "The server's own dashboard",
                "type": "link",
                "url": "${server}/dashboard/",
                "icon": "external link",
                "tooltip": "Turns, one by one, with their spans",
                "tags": [],
                "asDropdown": False,
                "targetBlank": True,
                "includeVars": False,
                "keepTime": False,
            }
        ],
        "panels": _placed(),
    }


def to_json() -> str:
    """As it is committed."""
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


def _variables() -> list[Json]:
    instances = f"label_values({names.BUILD.series[0]}, instance)"
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "instance",
            "label": "Server",
            "type": "query",
            "datasource": DATASOURCE,
            "query": instances,
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"selected": True, "text": "All", "value": "$__all"},
        },
        {
            "name": "server",
            "label": "Address for links",
            "type": "textbox",
            "query": "http://127.0.0.1:8080",
            "current": {
                "selected": True,
                "text": "http://127.0.0.1:8080",
                "value": "http://127.0.0.1:8080",
            },
        },
    ]


def _placed() -> list[Json]:
    """Rows of panels, from left to right and from top to bottom."""
    placed: list[Json] = []
    y = 0
    for title, make in ROWS:
        number = len(placed) + 1
        at = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        placed.append(
            {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": at}
            | {"panels": []}
        )
        x, y, height = 0, y + 1, 0
        for panel in make():
            w, h = TILE_SIZE if panel.tile else PANEL_SIZE
            if x + w > COLUMNS or (height and h != height):
                x, y = 0, y + height
            placed.append(_panel(panel, len(placed) + 1, {"x": x, "y": y, "w": w, "h": h}))
            x, height = x + w, h
        y += height
    return placed


def _panel(panel: Panel, number: int, at: Json) -> Json:
    return {
        "id": number,
        "type": "stat" if panel.tile else "timeseries",
        "title": panel.title,
        "description": panel.what,
        "datasource": DATASOURCE,
        "gridPos": at,
        "targets": [
            _target(index, query, legend, panel)
            for index, (query, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _tile_options() if panel.tile else _chart_options(),
    }


def _target(index: int, query: str, legend: str, panel: Panel) -> Json:
    return {
        "refId": chr(ord("A") + index),
        "datasource": DATASOURCE,
        "expr": query,
        "legendFormat": legend or "__auto",
        "range": True,
        "instant": False,
        "exemplar": panel.exemplars,
    }


def _defaults(panel: Panel) -> Json:
    defaults: Json = {"unit": panel.unit, "min": 0, "links": [PAGE_LINK]}
    if panel.threshold is not None:
        defaults |= {"color": {"mode": "thresholds"}, "thresholds": _steps(panel.threshold)}
    if not panel.tile:
        stacking = {"group": "A", "mode": "normal" if panel.stacked else "none"}
        fill = 30 if panel.stacked else 0
        defaults["custom"] = {"stacking": stacking, "fillOpacity": fill, "showPoints": "never"}
    return defaults


def _steps(threshold: Threshold) -> Json:
    warn, bad = ("yellow", threshold.warn), ("red", threshold.bad)
    steps: Sequence[tuple[str, float | None]] = (("green", None), warn, bad)
    if threshold.lower_is_worse:
        steps = (("red", None), ("yellow", threshold.bad), ("green", threshold.warn))
    return {"mode": "absolute", "steps": [{"color": c, "value": value} for c, value in steps]}


def _overrides(panel: Panel) -> list[Json]:
    """An exemplar's label `turn` links to the turn."""
    if not panel.exemplars:
        return []
    matcher = {"id": "byName", "options": "turn"}
    return [{"matcher": matcher, "properties": [{"id": "links", "value": [TURN_LINK]}]}]


def _tile_options() -> Json:
    reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    return {"reduceOptions": reduced, "colorMode": "value", "graphMode": "area"}


def _chart_options() -> Json:
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
