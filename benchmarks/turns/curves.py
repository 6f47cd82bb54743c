"""Curves of `headstart bench endpoint` as an SVG: the mean wait against its costs, by policy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

WIDTH, HEIGHT = 380, 300
LEFT, TOP, RIGHT, BOTTOM = 46, 30, 16, 40
SHORTEST_MS, LONGEST_MS = 250, 1850
COLOURS = {
    "fixed": "#888888",
    "semantic": "#1f77b4",
    "pipecat": "#9467bd",
    "livekit": "#2ca02c",
    "eager": "#d62728",
}
PANELS = {
    "false_start_share": ("a false start of over 300 ms heard", 0.2),
    "broken_share": ("turns broken", 0.4),
}


def svg(rows: Sequence[dict[str, Any]]) -> str:
    """The benchmark's `curves`, one panel for each of `PANELS`, side by side."""
    panels = [_panel(rows, key, number * WIDTH) for number, key in enumerate(PANELS)]
    size = f'width="{WIDTH * len(panels)}" height="{HEIGHT}"'
    style = 'font-family="sans-serif" font-size="11" fill="#444444"'
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>'
    return "\n".join([head, ground, *panels, "</svg>\n"])


def _panel(rows: Sequence[dict[str, Any]], key: str, shift: int) -> str:
    title, most = PANELS[key]
    parts = [f'<g transform="translate({shift} 0)">', *_axes(title, most)]
    for policy, points in groupby(rows, lambda row: str(row["policy"])):
        colour = COLOURS[policy]
        places = [
            (_x(row["all_first_token_ms_mean"]), _y(row[key], most))
            for row in points
            if row["all_first_token_ms_mean"] <= LONGEST_MS and row[key] <= most
        ]
        path = " ".join(f"{x:.0f},{y:.0f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.0f}" cy="{y:.0f}" r="2.5" fill="{colour}"/>' for x, y in places]
        at = TOP + 14 * (1 + list(COLOURS).index(policy))
        parts.append(f'<text x="{WIDTH - 80}" y="{at}" fill="{colour}">{policy}</text>')
    return "\n".join([*parts, "</g>"])


def _axes(title: str, most: float) -> list[str]:
    bottom = HEIGHT - BOTTOM
    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{title}</text>']
    for quarter in range(5):
        share = most * quarter / 4
        y = _y(share, most)
        parts.append(f'<path d="M{LEFT} {y:.0f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="8" y="{y + 4:.0f}">{share:.0%}</text>')
    for ms in range(400, LONGEST_MS + 1, 400):
        parts.append(f'<text x="{_x(ms) - 10:.0f}" y="{bottom + 16}">{ms}</text>')
    below = "mean wait to the first token, all turns, ms; share of turns"
    return [*parts, f'<text x="{LEFT}" y="{bottom + 32}">{below}</text>']


def _x(ms: float) -> float:
    return LEFT + (ms - SHORTEST_MS) / (LONGEST_MS - SHORTEST_MS) * (WIDTH - LEFT - RIGHT)


def _y(share: float, most: float) -> float:
    return TOP + (1 - share / most) * (HEIGHT - TOP - BOTTOM)
