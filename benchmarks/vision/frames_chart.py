"""Bars of `headstart bench frames` as an SVG: what each policy costs of 64 uniform frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LEFT, TOP, BAR, GAP = 640, 120, 64, 9, 12
TITLE = "Share of what 64 uniform frames take; bands: the thesis"
BARS = {"ttft_share": ("time to the first token", "#1f77b4"), "kv_share": ("K/V", "#d62728")}


def svg(rows: Sequence[dict[str, Any]], thesis: Mapping[str, tuple[float, float]]) -> str:
    """A pair of bars for each row. `thesis`: the least and the most that it reports, drawn as a
    band behind the bars of the same key."""
    step = BAR * len(BARS) + GAP
    height = TOP + step * len(rows) + 12
    style = 'font-family="sans-serif" font-size="11" fill="#444444"'
    size = f'width="{WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="12" y="18" font-weight="bold">{TITLE}</text>',
    ]
    for number, (key, (title, colour)) in enumerate(BARS.items()):
        x = 390 + 170 * number
        parts.append(f'<rect x="{x}" y="9" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16}" y="18">{title}</text>')
        if key in thesis:
            least, most = (_x(share) for share in thesis[key])
            band = f'x="{least:.0f}" y="{TOP - 6}" width="{most - least:.0f}"'
            parts.append(f'<rect {band} height="{height - TOP}" fill="{colour}" opacity="0.12"/>')
    for percent in range(0, 101, 25):
        at = round(_x(percent / 100))
        parts.append(f'<path d="M{at} {TOP - 10}V{height - 8}" stroke="#dddddd"/>')
        parts.append(f'<text x="{at}" y="{TOP - 16}" text-anchor="middle">{percent} %</text>')
    for number, row in enumerate(rows):
        y = TOP + number * step
        name = escape(str(row["policy"]))
        parts.append(f'<text x="{LEFT - 8}" y="{y + BAR + 4}" text-anchor="end">{name}</text>')
        for place, (key, (_, colour)) in enumerate(BARS.items()):
            length = max(1.0, _x(float(row[key])) - LEFT)
            bar = f'x="{LEFT}" y="{y + place * BAR}" width="{length:.0f}" height="{BAR - 1}"'
            parts.append(f'<rect {bar} fill="{colour}"/>')
    return "\n".join([*parts, "</svg>\n"])


def _x(share: float) -> float:
    return LEFT + min(share, 1.1) * (WIDTH - LEFT - 60)
