"""The reference page of all metrics, `docs/observability/metrics.md`, made of their names and help.

`headstart.gateway.telemetry.monitoring` writes it.
"""

from __future__ import annotations

from headstart.gateway.telemetry import names

SECTIONS = {
    names.BUILD.name: "Server",
    names.TURNS.name: "Turns",
    names.CHUNK_LATENCY.name: "Speech and camera input",
    names.ENGINE_UP.name: "Engine and KV cache",
    names.LLM_REQUESTS.name: "LLM server",
    names.CALLS_OPEN.name: "Calls",
}
"""Headings, by the first metric under each: metrics come in the order of `names`."""

HEAD = """\
# Metrics

All metrics at `/metrics`, as `gateway/telemetry/names.py` defines them. How to scrape, alert and
draw them: [observability](../observability.md#metrics). Made by
`python -m headstart.gateway.telemetry.monitoring`; do not edit.
"""
COLUMNS = "\n| metric | kind | labels | help |\n|---|---|---|---|\n"
NOTES = {
    "LLM server": "No samples with our own decoder ([backends](../backends.md)).",
    "Speech and camera input": "What each fate of a camera frame means: "
    "[architecture](../architecture.md#path-4-a-camera-frame).",
}


def page() -> str:
    """The whole page, Markdown."""
    text = HEAD
    for family in names.FAMILIES.values():
        if family.name in SECTIONS:
            title = SECTIONS[family.name]
            text += f"\n## {title}\n"
            text += f"\n{NOTES[title]}\n" if title in NOTES else ""
            text += COLUMNS
        text += row(family)
    return text


def row(family: names.Family) -> str:
    """A histogram goes by its base name, which its `_bucket`, `_sum` and `_count` share."""
    name = family.name if family.kind == "histogram" else family.series[0]
    labels = " ".join(f"`{label}`" for label in family.labels)
    return f"| `{name}` | {family.kind} | {labels} | {family.help} |\n"
