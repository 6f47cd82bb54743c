"""The dashboard and the rules for Prometheus: as committed, over metrics that exist, of the right
shape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from headstart.gateway.dashboard import messages
from headstart.gateway.server.app import PROJECT_WEB_DIR
from headstart.gateway.telemetry import alerts, grafana, metrics_page, monitoring, names
from headstart.gateway.telemetry.thresholds import THRESHOLDS
from headstart.top import tiles

PANELS = [panel for panel in grafana.dashboard()["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
CONDITIONS = [alert.query for alert in alerts.ALERTS]


@pytest.mark.parametrize("name", sorted(monitoring.files()))
def test_what_is_committed_is_what_is_made(name: str) -> None:
    """After a change: python -m headstart.gateway.telemetry.monitoring."""
    assert (monitoring.FOLDER / name).read_text() == monitoring.files()[name]


@pytest.mark.parametrize("query", [*QUERIES, *CONDITIONS])
def test_every_queried_metric_has_a_name(query: str) -> None:
    """`test_prometheus` looks for them on a real page."""
    found = re.findall(r"headstart_\w+", query)
    assert found
    known = {name for family in names.FAMILIES.values() for name in family.series}
    assert set(found) <= known


@pytest.mark.parametrize("query", QUERIES)
def test_rates_are_over_grafanas_own_window(query: str) -> None:
    """A fixed one would be wrong for another scrape interval."""
    assert "rate(" not in query.replace("$__rate_interval]", "") or "$__rate_interval]" in query
    assert not re.search(r"\brate\([^)]*\[\d", query)


def test_labels_exist() -> None:
    """What is grouped by is a label of its metric, or one that Prometheus gives."""
    for query in [*QUERIES, *CONDITIONS]:
        for groups, name in re.findall(r"by \(([^)]*)\) \((?:rate\()?(headstart_\w+)", query):
            (family,) = (f for f in names.FAMILIES.values() if name in f.series)
            known = {*family.labels, "le", "job", "instance"}
            assert set(groups.split(", ")) <= known, query


def test_the_page_and_the_rules_share_thresholds() -> None:
    """One file has the numbers of the feed's greeting and of the alerts."""
    assert {name: list(levels) for name, levels in THRESHOLDS.items()} == messages.THRESHOLDS
    assert {alert.threshold for alert in alerts.ALERTS} == set(THRESHOLDS)
    over = messages.THRESHOLDS["turns_over_budget_share"]
    assert [f">= {level:g}" in alerts.rules() for level in over] == [True, True]


def test_older_recordings_are_judged_by_the_same_thresholds() -> None:
    """Where a greeting has none, the page and `headstart top` use numbers of their own."""
    page = (PROJECT_WEB_DIR / "dashboard/data/health.js").read_text()
    (block,) = re.findall(r"const DEFAULTS = \{(.*?)\};", page, re.DOTALL)
    found = re.findall(r"(\w+): \[([\d.]+), ([\d.]+)\]", block)
    assert found
    in_page = {name: [float(warn), float(bad)] for name, warn, bad in found}
    for kept in (in_page, {name: list(levels) for name, levels in tiles.DEFAULTS.items()}):
        assert kept == {name: messages.THRESHOLDS[name] for name in kept}


def test_timings_link_to_turns() -> None:
    """Each panel with exemplars has the link, and all have one to the server's page."""
    linked = [p for p in PANELS if p["targets"][0]["exemplar"]]
    assert len(linked) >= 4
    for panel in linked:
        (override,) = panel["fieldConfig"]["overrides"]
        assert override["matcher"] == {"id": "byName", "options": "turn"}
        (link,) = override["properties"][0]["value"]
        assert "/dashboard/#turn=${__value.raw}" in link["url"]
    assert all(p["fieldConfig"]["defaults"]["links"] for p in PANELS)


def test_the_dashboard_has_grafanas_shape() -> None:
    """Grafana's own models of its schema take all of it: a key that they do not know would be gone
    after a round trip."""
    register_default_plugins()
    made = json.loads(grafana.to_json())
    back = json.loads(json.dumps(Dashboard.from_json(made), cls=JSONEncoder))
    assert list(_lost(made, back)) == []
    assert list(_lost({"fieldConfig": {"wrong": 1}}, {"fieldConfig": {}})) == [".fieldConfig.wrong"]


def test_panels_have_their_own_place_and_id() -> None:
    """Nothing overlaps or leaves the grid."""
    taken: set[tuple[int, int]] = set()
    all_panels = grafana.dashboard()["panels"]
    assert len({panel["id"] for panel in all_panels}) == len(all_panels)
    for panel in all_panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= grafana.COLUMNS
        assert not taken & cells, panel["title"]
        taken |= cells


def _lost(made: Any, back: Any, path: str = "") -> Iterator[str]:
    """Where two JSON values differ, but for what only the second has."""
    if isinstance(made, dict) and isinstance(back, dict):
        for key, value in made.items():
            if key in back:
                yield from _lost(value, back[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(made, list) and isinstance(back, list) and len(made) == len(back):
        for index, (one, other) in enumerate(zip(made, back, strict=True)):
            yield from _lost(one, other, f"{path}[{index}]")
    elif made != back:
        yield path


def test_the_page_lists_every_metric() -> None:
    """With its kind and labels, each under a heading."""
    page = (monitoring.FOLDER / "metrics.md").read_text()
    rows = re.findall(r"(?m)^\| `(headstart_\w+)` \| (\w+) \|([^|]*)\|", page)
    assert {name: (kind, set(re.findall(r"\w+", labels))) for name, kind, labels in rows} == {
        family.name if family.kind == "histogram" else family.series[0]: (
            family.kind,
            set(family.labels),
        )
        for family in names.FAMILIES.values()
    }
    assert page.index("\n## ") < page.index("| `headstart_")
    assert page.count("\n## ") == len(metrics_page.SECTIONS)
