"""How the server does, in eight tiles: a number, a word and a level each, as on the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from headstart.recordings.clock import number
from headstart.recordings.faces import in_ms, plain
from headstart.recordings.reader import Json
from headstart.recordings.turns import Turn, listed, record
from headstart.top.state import State

KV_LEVELS = ("calm", "degraded", "offloading", "refusing")
ERRORS_PER_MIN = (1.0, 10.0)
NEEDED_P95 = 20
Threshold = tuple[float, float]
"""From where on to watch, and from where on to act."""
DEFAULTS: dict[str, Threshold] = {
    "turns_over_budget_share": (0.05, 0.2),
    "chunk_overrun_share": (0.01, 0.05),
    "headroom_p5_percent": (20, 0),
    "kv_share": (0.85, 1.0),
    "kv_level": (2, 3),
    "rtp_lost_share": (0.02, 0.05),
}
"""Where the feed says nothing."""
WORDS = {"good": "fine", "warn": "watch", "bad": "act", "none": "no data"}
_ORDER = ["none", "good", "warn", "bad"]


class Tile(NamedTuple):
    """`level`: a key of `WORDS`."""

    title: str
    value: str
    note: str
    level: str


def tiles(state: State) -> list[Tile]:
    """Of the newest five minutes."""
    turns = state.recent()
    counted = [turn for turn in turns if turn.left_out_as is None]
    settings = record(state.hello.get("settings")) or {}
    budget_ms = number(settings.get("latency_budget_ms"))
    if budget_ms is None and counted:
        budget_ms = counted[-1].budget_ms
    totals = sorted(turn.values["total"] for turn in counted if "total" in turn.values)
    sounds = sorted(t.values["first_sound"] for t in counted if "first_sound" in t.values)
    return [
        _sessions(state),
        _first_token(totals, budget_ms),
        _first_sound(sounds, budget_ms),
        _within(state, counted, budget_ms),
        _headroom(state, turns),
        _kv(state),
        _rtp(state),
        _errors(state),
    ]


def level_of(value: float | None, limits: Threshold) -> str:
    """Thresholds that fall (headroom) are read the other way round."""
    if value is None:
        return "none"
    warn, bad = limits
    sign = 1 if bad >= warn else -1
    if sign * value >= sign * bad:
        return "bad"
    return "warn" if sign * value >= sign * warn else "good"


def threshold(state: State, name: str) -> Threshold:
    given = listed((record(state.hello.get("thresholds")) or {}).get(name))
    limits = [number(value) for value in given]
    if len(limits) == 2 and limits[0] is not None and limits[1] is not None:
        return limits[0], limits[1]
    return DEFAULTS[name]


def quantile(rising: Sequence[float], q: float) -> float | None:
    """By nearest rank; None of nothing."""
    return rising[max(0, math.ceil(q * len(rising)) - 1)] if rising else None


def part(snapshot: Json, name: str) -> Json:
    return record(snapshot.get(name)) or {}


def percent(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{100 * share:.1f} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def _count(value: object) -> str:
    given = number(value)
    return "-" if given is None else f"{given:,.0f}"


def _worse(a: str, b: str) -> str:
    return max(a, b, key=_ORDER.index)


def _sessions(state: State) -> Tile:
    sessions = part(state.snapshot, "sessions")
    opened, most = number(sessions.get("open")), number(sessions.get("max"))
    notes = [f"of {most:.0f}"] if most else []
    notes += [
        f"{_count(sessions[name])} {name}"
        for name in ("refused", "detached")
        if number(sessions.get(name))
    ]
    level = level_of(opened / most, (0.9, 1.0)) if opened is not None and most else "none"
    return Tile("Sessions", _count(opened), ", ".join(notes), level)


def _first_token(rising: Sequence[float], budget_ms: float | None) -> Tile:
    p50 = quantile(rising, 0.5)
    p95 = quantile(rising, 0.95) if len(rising) >= NEEDED_P95 else None
    level = "none"
    if p50 is not None and budget_ms:
        slow = p50 if p95 is None else p95
        level = "bad" if p50 > budget_ms else "warn" if slow > budget_ms else "good"
    return Tile("First token", _ms(p50), _p50_note(rising, p95), level)


def _p50_note(rising: Sequence[float], p95: float | None) -> str:
    if p95 is not None:
        return f"p50 · p95 {_ms(p95)}"
    return f"p50 · n = {len(rising)}, no p95" if rising else ""


def _first_sound(rising: Sequence[float], budget_ms: float | None) -> Tile:
    if not rising:
        return Tile("First sound", "-", "nothing was spoken", "none")
    p50, p95 = quantile(rising, 0.5), quantile(rising, 0.95)
    is_few = len(rising) < NEEDED_P95
    # A voice begins after the first clause: twice the budget of the first token.
    limits = (2 * budget_ms, 3 * budget_ms) if budget_ms else None
    level = level_of(p50 if is_few else p95, limits) if limits else "none"
    if is_few:
        return Tile("First sound", _ms(p50), _p50_note(rising, None), level)
    return Tile("First sound", _ms(p95), f"p95 · p50 {_ms(p50)}", level)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{in_ms(value)} ms"


def _within(state: State, counted: Sequence[Turn], budget_ms: float | None) -> Tile:
    over = sum(turn.is_over_budget for turn in counted)
    share = over / len(counted) if counted else None
    note = f"of {len(counted)} in {_ms(budget_ms)}" if budget_ms else ""
    level = level_of(share, threshold(state, "turns_over_budget_share"))
    return Tile("In budget", percent(None if share is None else 1 - share), note, level)


def _headroom(state: State, turns: Sequence[Turn]) -> Tile:
    chunks = [c for turn in turns for c in turn.chunks if c.headroom_percent is not None]
    p5 = quantile(sorted(c.headroom_percent or 0.0 for c in chunks), 0.05)
    over = sum(chunk.overrun for chunk in chunks)
    share = over / len(chunks) if chunks else None
    level = _worse(
        level_of(p5, threshold(state, "headroom_p5_percent")),
        level_of(share, threshold(state, "chunk_overrun_share")),
    )
    note = f"p5 · {over} overrun{'' if over == 1 else 's'}" if chunks else ""
    return Tile("Headroom", "-" if p5 is None else f"{p5:.0f} %", note, level)


def _kv(state: State) -> Tile:
    kv = part(state.snapshot, "kv")
    used, total = number(kv.get("blocks_used")), number(kv.get("blocks_total"))
    share = used / total if used is not None and total else None
    name = kv.get("level")
    step = KV_LEVELS.index(name) if name in KV_LEVELS else None
    by_level = level_of(step, threshold(state, "kv_level"))
    level = _worse(level_of(share, threshold(state, "kv_share")), by_level)
    return Tile("KV cache", percent(share), plain(name or "", 18), level)


def _rtp(state: State) -> Tile:
    share = state.lost_share()
    calls = sum(isinstance(row.get("rtc"), dict) for row in state.rows)
    note = "no calls" if share is None else f"1 min, {calls} call{'' if calls == 1 else 's'}"
    return Tile(
        "RTP loss", percent(share), note, level_of(share, threshold(state, "rtp_lost_share"))
    )


def _errors(state: State) -> Tile:
    errors = part(state.snapshot, "errors")
    per_min = number(errors.get("last_minute"))
    note = f"{_count(errors.get('total'))} since the start"
    return Tile("Errors/min", _count(per_min), note, level_of(per_min, ERRORS_PER_MIN))
