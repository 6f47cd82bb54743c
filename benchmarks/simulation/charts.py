"""The rows of `headstart bench simulate` as an SVG: sizing, trouble, and ten thousand sessions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT = 400, 300
LEFT, TOP, RIGHT, BOTTOM = 50, 34, 16, 44
LEAST_MS, MOST_MS = 400.0, 6_400.0
MARKS_MS = (400, 800, 1_600, 3_200, 6_400)
MOST_SESSIONS = 10_000  # on one node, where the axis ends
COLOURS = {"cpu": "#d62728", "l40s": "#2ca02c", "h100": "#1f77b4", "h200": "#9467bd"}
NAMES = {"cpu": "CPU", "l40s": "L40S", "h100": "H100", "h200": "H200"}
BARS = {"p50": "#9ecae1", "p95": "#4292c6", "p99": "#08519c"}


def svg(rows: Sequence[dict[str, Any]]) -> str:
    """Three panels side by side."""
    panels = [_sizing(rows), _trouble(rows), _scale(rows)]
    moved = [f'<g transform="translate({n * WIDTH} 0)">{p}</g>' for n, p in enumerate(panels)]
    size = f'width="{WIDTH * len(panels)}" height="{HEIGHT}"'
    style = 'font-family="sans-serif" font-size="11" fill="#444444"'
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>'
    return "\n".join([head, ground, *moved, "</svg>\n"])


def _sizing(rows: Sequence[dict[str, Any]]) -> str:
    """p95 against sessions on one node; dashed: everything at the endpoint."""
    parts = _axes("p95 of the first token by sessions on one node", "sessions on a node")
    for count in (1, 10, 100, 1_000, MOST_SESSIONS):
        x = _x_log(count) - 3 * len(f"{count:,}")
        parts.append(_text(x, HEIGHT - BOTTOM + 16, f"{count:,}"))
    for number, (kind, colour) in enumerate(COLOURS.items()):
        parts.append(_text(WIDTH - 60, TOP + 14 * (number + 1), NAMES[kind], colour))
        for when, dash in (("ahead", ""), ("at the end", ' stroke-dasharray="4 3"')):
            points = [
                (_x_log(row["sessions"]), _y(row["first_token_ms_p95"]))
                for row in rows
                if row["about"] == "sizing" and row["kind"] == kind and when in row["policy"]
                if row["first_token_ms_p95"] is not None
            ]
            path = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
            line = f'fill="none" stroke="{colour}" stroke-width="2"{dash}'
            parts.append(f'<polyline points="{path}" {line}/>')
    parts.append(_text(LEFT + 10, TOP + 14, "dashed: all at the endpoint"))
    return "\n".join(parts)


def _trouble(rows: Sequence[dict[str, Any]]) -> str:
    """The waits of each policy while one node dies and one is slow."""
    parts = _axes("1,000 sessions, 10 nodes: one dies, one is slow", "")
    found = [row for row in rows if row["about"] == "one dies, one is slow"]
    step = (WIDTH - LEFT - RIGHT) / max(len(found), 1)
    for number, row in enumerate(found):
        for bar, (percent, colour) in enumerate(BARS.items()):
            ms = row[f"first_token_ms_{percent}"]
            if ms is None:
                continue
            x, y = LEFT + number * step + 4 + bar * (step - 8) / 3, _y(ms)
            size = f'width="{(step - 10) / 3:.0f}" height="{HEIGHT - BOTTOM - y:.0f}"'
            parts.append(f'<rect x="{x:.0f}" y="{y:.0f}" {size} fill="{colour}"/>')
        where, _, when = row["policy"].partition(", ")
        x = LEFT + number * step + 2
        where = where.removesuffix("_sessions").replace("_", " ")
        parts.append(_text(x, HEIGHT - BOTTOM + 16, where, size=9))
        parts.append(_text(x, HEIGHT - BOTTOM + 28, when, size=9))
    for number, (percent, colour) in enumerate(BARS.items()):
        parts.append(_text(LEFT + 10 + 36 * number, TOP + 12, percent, colour))
    return "\n".join(parts)


def _scale(rows: Sequence[dict[str, Any]]) -> str:
    """From p50 to p99 of the runs in order, by sessions."""
    parts = _axes("all in order: from p50 to p99, by sessions / nodes", "")
    found = [row for row in rows if row["about"] == "scale"]
    step = (WIDTH - LEFT - RIGHT) / max(len(found), 1)
    for number, row in enumerate(found):
        x = LEFT + (number + 0.5) * step
        low, high = row["first_token_ms_p50"], row["first_token_ms_p99"]
        if low is not None and high is not None:
            size = f'width="14" height="{max(_y(low) - _y(high), 2):.0f}"'
            at = f'x="{x - 7:.0f}" y="{_y(high):.0f}"'
            parts.append(f'<rect {at} {size} fill="{COLOURS[row["kind"]]}"/>')
        parts.append(_text(x - 14, HEIGHT - BOTTOM + 14, f"{row['sessions']}", size=9))
        parts.append(_text(x - 14, HEIGHT - BOTTOM + 26, f"/ {row['nodes']}", size=9))
        name, colour = NAMES[row["kind"]], COLOURS[row["kind"]]
        parts.append(_text(x - 14, HEIGHT - BOTTOM + 38, name, colour, 9))
    return "\n".join(parts)


def _axes(title: str, below: str) -> list[str]:
    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{title}</text>']
    for ms in MARKS_MS:
        y = _y(ms)
        parts.append(f'<path d="M{LEFT} {y:.0f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(_text(6, y + 4, f"{ms} ms" if ms < 1_000 else f"{ms / 1000:g} s"))
    parts.append(_text(LEFT, HEIGHT - BOTTOM + 36, below))
    return parts


def _text(x: float, y: float, words: str, colour: str = "#444444", size: int = 11) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}" font-size="{size}">{words}</text>'


def _x_log(count: float) -> float:
    return LEFT + math.log10(max(count, 1)) / math.log10(MOST_SESSIONS) * (WIDTH - LEFT - RIGHT)


def _y(ms: float) -> float:
    ms = min(max(ms, LEAST_MS), MOST_MS)
    share = math.log2(ms / LEAST_MS) / math.log2(MOST_MS / LEAST_MS)
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
