"""Curves of `headstart bench endpoint` as an SVG: wait against turns cut off, by policy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

WIDTH, HEIGHT = 360, 300
LEFT, TOP, RIGHT, BOTTOM = 46, 30, 10, 40
LONGEST_MS = 1400
COLOURS = {"fixed": "#888888", "adaptive": "#1f77b4", "semantic": "#d62728"}


def svg(rows: Sequence[dict[str, Any]]) -> str:
    """The benchmark's rows, one panel per material, side by side."""
    materials = list(dict.fromkeys(row["material"] for row in rows))
    panels = [
        _panel(name, [row for row in rows if row["material"] == name], number * WIDTH)
        for number, name in enumerate(materials)
    ]
    size = f'width="{WIDTH * len(panels)}" height="{HEIGHT}"'
    style = 'font-family="sans-serif" font-size="11" fill="#444444"'
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>'
    return "\n".join([head, ground, *panels, "</svg>\n"])


def _panel(name: str, rows: Sequence[dict[str, Any]], shift: int) -> str:
    parts = [f'<g transform="translate({shift} 0)">', *_axes(name)]
    for policy, points in groupby(rows, lambda row: str(row["policy"])):
        colour = COLOURS[policy]
        places = [(_x(row["latency_ms"]), _y(row["cut_off"])) for row in points]
        path = " ".join(f"{x:.0f},{y:.0f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.0f}" cy="{y:.0f}" r="2.5" fill="{colour}"/>' for x, y in places]
        at = TOP + 14 * (1 + list(COLOURS).index(policy))
        parts.append(f'<text x="{WIDTH - 80}" y="{at}" fill="{colour}">{policy}</text>')
    return "\n".join([*parts, "</g>"])


def _axes(name: str) -> list[str]:
    bottom = HEIGHT - BOTTOM
    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{name}</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _y(share)
        parts.append(f'<path d="M{LEFT} {y:.0f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="8" y="{y + 4:.0f}">{share:.0%}</text>')
    for ms in range(200, LONGEST_MS + 1, 400):
        parts.append(f'<text x="{_x(ms) - 10:.0f}" y="{bottom + 16}">{ms}</text>')
    below = "median wait behind the last word, ms; turns cut off, %"
    return [*parts, f'<text x="{LEFT}" y="{bottom + 32}">{below}</text>']


def _x(ms: float) -> float:
    return LEFT + (ms - 200) / (LONGEST_MS - 200) * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)
