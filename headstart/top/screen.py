"""The screen as lines of text: header, strip, engine, sessions, the newest error, keys.

Fits 80 by 24, and gives the sessions whatever a larger terminal has more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rich.cells import set_cell_size
from rich.text import Text

from headstart.recordings.clock import number, time_of_day
from headstart.recordings.faces import in_ms, mini_bar, plain, short
from headstart.recordings.reader import Json
from headstart.recordings.turns import listed, record
from headstart.top.state import State
from headstart.top.tiles import WORDS, Tile, part, tiles

LEVEL_STYLES = {"good": "green", "warn": "yellow", "bad": "bold red", "none": "bright_black"}
TILES_A_ROW = 4
TILE_CELLS_MIN = 18
BAR_CELLS = 16
MODALITIES_FROM = 112
"""Columns from which on a session's KV tokens are told by modality."""
DIM = "bright_black"


@dataclass(frozen=True)
class View:
    """What is shown of it. `height` None: all of it. `status`: of the connection; `page`: of the
    sessions, from 0 on; any number is one of them."""

    width: int = 80
    height: int | None = None
    status: str = ""
    page: int = 0
    colour: bool = True
    hint: str = ""


def lines(state: State, view: View) -> list[Text]:
    """At most `view.height` lines, none wider than `view.width`."""
    top = [_header(state, view), *_strip(state, view), _engine(state), *_engines(state)]
    bottom = _newest_error(state)
    room = None
    if view.height is not None:
        room = max(1, view.height - len(top) - 1 - len(bottom) - bool(view.hint))
    shown, pages = _rows(state, view, room)
    if view.height is not None and view.hint:
        filled = [Text("")] * ((room or 0) - len(shown))
        bottom = [*filled, *bottom, _footer(view, pages)]
    all_lines = [*top, _columns(state, view), *shown, *bottom]
    for line in all_lines:
        line.truncate(view.width)
    return all_lines[: view.height]


def _header(state: State, view: View) -> Text:
    text = Text("headstart top", style="bold")
    facts = [plain(view.status)] if view.status else []
    if state.hello.get("model"):
        facts.append(f"model {plain(state.hello['model'], 24)}")
    if state.hello:
        facts.append(f"{time_of_day(state.clock.base_ms + state.clock.now_ms)[:8]} UTC")
    if state.dropped:
        facts.append(f"{state.dropped} messages missed")
    if state.unreadable:
        facts.append(f"{state.unreadable} not understood")
    text.append("".join(f" · {fact}" for fact in facts), style="not bold")
    return text


def _strip(state: State, view: View) -> list[Text]:
    """Two rows of four tiles, or as many as fit; three lines each."""
    all_tiles = tiles(state)
    a_row = max(1, min(TILES_A_ROW, view.width // TILE_CELLS_MIN))
    if view.width >= 2 * TILES_A_ROW * TILE_CELLS_MIN:
        a_row = 2 * TILES_A_ROW
    cells = view.width // a_row
    made = []
    for at in range(0, len(all_tiles), a_row):
        row = all_tiles[at : at + a_row]
        made.append(_joined(row, cells, _title))
        made.append(_joined(row, cells, lambda tile: Text(tile.value, LEVEL_STYLES[tile.level])))
        made.append(_joined(row, cells, lambda tile: Text(tile.note, DIM)))
    return made


def _title(tile: Tile) -> Text:
    text = Text(f"{tile.title} ", "bold")
    return text.append(WORDS[tile.level], style=LEVEL_STYLES[tile.level])


def _joined(row: list[Tile], cells: int, face: Callable[[Tile], Text]) -> Text:
    text = Text()
    for tile in row:
        one = face(tile)
        one.truncate(cells - 1, overflow="ellipsis")
        one.pad_right(cells - one.cell_len)
        text.append_text(one)
    return text


def _engine(state: State) -> Text:
    engine, lag = part(state.snapshot, "engine"), part(state.snapshot, "loop_lag")
    steps, share = part(engine, "steps"), part(state.snapshot, "process").get("gateway_cpu_share")
    if not state.snapshot:
        return Text("waiting for the first snapshot" if state.hello else "", DIM)
    facts = [f"engine {plain(engine.get('state', 'unknown'), 12)}"]
    if number(steps.get("count")):
        facts.append(f"{_int(steps.get('count'))} steps/s")
        facts.append(f"p50 {_int(steps.get('p50_ms'))} p95 {_int(steps.get('p95_ms'))} ms")
        facts.append(f"queue {_int(steps.get('queue_max'))}")
    facts.append(f"lag p99 {_tenth(lag.get('p99_ms'))} ms")
    cpu = number(share)
    facts.append("" if cpu is None else f"{100 * cpu:.0f} % CPU")
    style = "" if engine.get("state") == "ready" else "bold red"
    return Text(", ".join(fact for fact in facts if fact), style)


def _engines(state: State) -> list[Text]:
    """One line for all engines, if there are several."""
    engines = _several_engines(state)
    if not engines:
        return []
    text = Text(f"{len(engines)} engines")
    for engine in engines:
        is_ready = engine.get("state") == "ready"
        said = "" if is_ready else f" {plain(engine.get('state', 'unknown'), 12)}"
        used, total = number(engine.get("kv_blocks_used")), number(engine.get("kv_blocks_total"))
        name = plain(engine.get("name", "?"), ENGINE[1])
        text.append(f" · {name}{said}", "" if is_ready else "red")
        text.append(f" {_int(engine.get('sessions'))} sessions")
        text.append("" if used is None or not total else f", KV {100 * used / total:.0f} %")
    return [text]


def _newest_error(state: State) -> list[Text]:
    if not state.error:
        return []
    at = time_of_day(state.clock.wall_ms(state.error))[:8]
    said = f"{plain(state.error.get('code', ''), 40)}: {plain(state.error.get('message', ''), 300)}"
    return [Text(f"{at} {said}", style="red")]


def _footer(view: View, pages: int) -> Text:
    page = f"page {view.page % pages + 1} of {pages} · space: next page · " if pages > 1 else ""
    return Text(page + view.hint, style=DIM)


# --- sessions ------------------------------------------------------------------------------------

# Of each column: its name and cells; negative: to the right.
COLUMNS = (
    ("session", 7),
    ("via", 3),
    ("state", 9),
    ("age", -7),
    ("turns", -5),
    ("last ms", -7),
    ("where it went", BAR_CELLS),
    ("head %", -6),
    ("KV", -5),
    ("loss", -5),
)
MODALITIES = ("text / audio / image / said", 28)
ENGINE = ("engine", 14)


def _several_engines(state: State) -> list[Json]:
    """Of a gateway with several; empty if it has one."""
    engines = [each for each in listed(state.snapshot.get("engines")) if isinstance(each, dict)]
    return engines if len(engines) > 1 else []


def _names_engines(state: State, view: View) -> bool:
    """Whether each session's engine is named: there are several, and room for the column."""
    return view.width >= MODALITIES_FROM + ENGINE[1] + 1 and bool(_several_engines(state))


def _columns(state: State, view: View) -> Text:
    names = [*COLUMNS, MODALITIES] if view.width >= MODALITIES_FROM else list(COLUMNS)
    if _names_engines(state, view):
        names.append(ENGINE)
    return Text(" ".join(_cell(name, cells) for name, cells in names), style="bold underline")


def _cell(text: str, cells: int) -> str:
    if cells < 0:
        text = " " * (-cells - len(text)) + text
    return set_cell_size(text, abs(cells))


def _rows(state: State, view: View, room: int | None) -> tuple[list[Text], int]:
    """The page's sessions, and how many pages there are."""
    rows = state.rows
    if not rows:
        return ([Text("no sessions", DIM)] if state.snapshot else []), 1
    if room is None:
        return [_row(state, row, view) for row in rows], 1
    pages = -(-len(rows) // room)
    first = view.page % pages * room
    return [_row(state, row, view) for row in rows[first : first + room]], pages


def _row(state: State, row: Json, view: View) -> Text:
    turn = state.turns.get(str(row.get("last_turn")))
    call = record(row.get("rtc"))
    kv = record(row.get("kv")) or {}
    headroom = number(row.get("headroom_percent"))
    transport = row.get("transport")
    via = {"websocket": "ws", "webrtc": "rtc"}.get(str(transport), plain(transport or "?"))
    bar = Text(" " * BAR_CELLS) if turn is None else mini_bar(turn, BAR_CELLS, view.colour)
    over = "bold red" if turn is not None and turn.is_over_budget else ""
    late = "red" if headroom is not None and headroom <= 0 else ""
    lost = None if call is None else number(call.get("lost_share"))
    faces = [
        Text(short(str(row.get("id", "")))),
        Text(via),
        Text(plain(row.get("state") or "")),
        Text(_age(number(row.get("age_s")))),
        Text(_int(row.get("turns"))),
        Text(in_ms(None if turn is None else turn.total_ms), over),
        bar,
        Text("-" if headroom is None else f"{headroom:.0f}", late),
        Text(_int(kv.get("tokens"))),
        Text("" if call is None else "-" if lost is None else f"{100 * lost:.1f}"),
    ]
    text = Text()
    for face, (name, cells) in zip(faces, COLUMNS, strict=True):
        fitted = face if name == "where it went" else Text(_cell(face.plain, cells), face.style)
        text.append_text(fitted).append(" ")
    if view.width >= MODALITIES_FROM:
        by = record(kv.get("by_modality")) or {}
        names = ("text", "audio", "image", "generated")
        modalities = " / ".join(_int(by.get(name)) for name in names)
        if _names_engines(state, view):
            modalities = f"{_cell(modalities, MODALITIES[1])} {plain(row.get('engine') or '-')}"
        text.append(modalities)
    return text


def _int(value: Any) -> str:
    given = number(value)
    return "-" if given is None else f"{given:.0f}"


def _tenth(value: Any) -> str:
    given = number(value)
    return "-" if given is None else f"{given:.1f}"


def _age(age_s: float | None) -> str:
    if age_s is None or not 0 <= age_s < 1e8:
        return "-"
    return str(timedelta(seconds=int(age_s))).replace(" days, ", "d").replace(" day, ", "d")
