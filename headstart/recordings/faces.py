"""A turn as text: one line with a bar of its stages, or its waterfall with who owns each wait."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headstart.recordings.bars import bars_of, instants_of
from headstart.recordings.clock import time_of_day
from headstart.recordings.stages import in_order, owner_of, row_of
from headstart.recordings.turns import Turn

STYLES = {
    "network": "bright_black",
    "endpointing": "yellow",
    "recognition": "green",
    "model": "cyan",
    "voice": "magenta",
    "playout": "blue",
}
LETTERS = {row: row[0] for row in STYLES}
"""A bar's cells where there is no colour: "e" is endpointing's."""
BAR_CELLS = 20
WATERFALL_CELLS = (20, 60)
BESIDES_CELLS = 60
"""What a waterfall needs beside its bars: names, numbers and owners."""
BUDGETS_WIDE = 1.25
"""A bar shows so many times the budget; one that is longer ends in "▶"."""
UNKNOWN = "-"


def plain(value: object, cells: int | None = None) -> str:
    """What came from a file or server, as text that no terminal obeys. At most `cells` long."""
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))
    return text if cells is None or len(text) <= cells else text[: cells - 1] + "…"


def short(name: str) -> str:
    """An id as its last letters: its first ones are the same everywhere."""
    return plain(name)[-6:] or UNKNOWN


def in_ms(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def mini_bar(turn: Turn, cells: int = BAR_CELLS, colour: bool = True) -> Text:
    """The stages up to the first token, one behind the other; the width is `BUDGETS_WIDE` times
    the budget in every bar, with "│" where it ends."""
    stages = [(stage, ms) for stage, ms in turn.stages.items() if ms is not None and ms > 0]
    stages = [pair for pair in stages if pair[0] not in ("voice", "playout")]
    total_ms = turn.total_ms or sum(ms for _, ms in stages)
    wide_ms = (turn.budget_ms or total_ms or 1.0) * BUDGETS_WIDE
    text = Text()
    begun_ms = 0.0
    for stage in in_order(stage for stage, _ in stages):
        ms = turn.stages[stage] or 0.0
        before = _cell(begun_ms, wide_ms, cells)
        begun_ms += ms
        row = row_of(stage)
        letter = "█" if colour else LETTERS[row]
        text.append(letter * (_cell(begun_ms, wide_ms, cells) - before), style=STYLES[row])
    if begun_ms > wide_ms:
        text.right_crop(1)
        text.append("▶", style="red")
    text.append(" " * (cells - len(text)))
    limit = _cell(turn.budget_ms, wide_ms, cells) if turn.budget_ms else cells
    if limit < cells and text.plain[limit] == " ":
        text = text[:limit] + Text("│", style="bright_black") + text[limit + 1 :]
    return text


def _cell(at_ms: float, wide_ms: float, cells: int) -> int:
    return min(cells, round(at_ms / wide_ms * cells))


def legend(colour: bool = True) -> Text:
    """What the colours or letters of the bars mean."""
    text = Text()
    for row, style in STYLES.items():
        if row not in ("voice", "playout"):
            text.append(f"{'█' if colour else LETTERS[row]} {row}  ", style=style)
    return text.append("│ the budget", style="bright_black")


def line(turn: Turn, colour: bool = True) -> Text:
    """A turn in one line of 80 cells: when, whose, how long, where it went, and what to know."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f"{time_of_day(turn.at_ms)} ", style="bright_black")
    text.append(f"{short(turn.session):>6} #{turn.number or '?':<3} ")
    over = "bold red" if turn.is_over_budget else ""
    text.append(f"{in_ms(turn.total_ms):>6} ms ", style=over)
    text.append_text(mini_bar(turn, colour=colour))
    text.append(f" {_remark(turn)}", style=over)
    return text


def _remark(turn: Turn) -> str:
    if turn.is_interrupted:
        return "interrupted" if turn.message.get("revoked_ms") is None else "taken back"
    if turn.reason != "completed":
        return plain(turn.reason, 18)
    if turn.total_ms is None:
        return "not measured"
    if not turn.is_realtime:
        return "not real time"
    if turn.is_over_budget and turn.budget_ms is not None:
        return f"{turn.total_ms - turn.budget_ms:,.0f} ms over budget"
    heard = turn.stamps.get("playout_started")
    sound = turn.stamps.get("first_sound") if heard is None else heard
    word = "sound" if heard is None else "heard"
    return "" if sound is None else f"{word} {sound:,.0f}"


def waterfall(turn: Turn, width: int = 80) -> RenderableType:
    """One turn, row by row. Time 0 is the last sound of speech; "░" was done before anybody
    waited."""
    fewest, most = WATERFALL_CELLS
    wide = max(fewest, min(most, width - BESIDES_CELLS))
    bars = bars_of(turn)
    left = min([0.0, *(bar.start_ms for bar in bars)])
    right = max([1.0, *(bar.end_ms for bar in bars)])
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    for name in ("stage", "waited", "hidden"):
        table.add_column(name, justify="left" if name == "stage" else "right", no_wrap=True)
    table.add_column(f"{left:,.0f} … {right:,.0f} ms", no_wrap=True)
    table.add_column("owner")
    for stage in in_order({bar.stage for bar in bars} | set(turn.stages)):
        mine = [bar for bar in bars if bar.stage == stage]
        hidden = sum(bar.end_ms - bar.start_ms for bar in mine if bar.hidden)
        drawn = [" "] * wide
        for bar in sorted(mine, key=lambda bar: not bar.hidden):
            _draw(drawn, bar.start_ms - left, bar.end_ms - left, right - left, bar.hidden)
        waited = turn.stages.get(stage)
        table.add_row(
            plain(stage, 14),
            UNKNOWN if waited is None else f"{waited:,.1f}",
            f"{hidden:,.1f}" if hidden else "",
            Text("".join(drawn), style=STYLES[row_of(stage)]),
            plain(owner_of(turn.waits, stage).removeprefix("setting ")) if waited else "",
        )
    return Group(line(turn), table, *(Text(fact, style="bright_black") for fact in _facts(turn)))


def _draw(cells: list[str], start: float, end: float, wide: float, hidden: bool) -> None:
    first = min(len(cells) - 1, int(start / wide * len(cells)))
    last = max(first + 1, round(end / wide * len(cells)))
    for at in range(first, min(last, len(cells))):
        cells[at] = "░" if hidden else "█"


def _facts(turn: Turn) -> list[str]:
    facts = [f"{plain(turn.id)} in {plain(turn.session)}, time 0 = {plain(turn.anchor)}"]
    marks = [f"{name} {ms:,.0f}" for name, ms in instants_of(turn)]
    if marks:
        facts.append("at ms: " + ", ".join(marks))
    if turn.hidden_ms is not None:
        facts.append(f"head start: {turn.hidden_ms:,.0f} ms of work cost no waiting")
    if turn.chunks:
        late = sum(chunk.overrun for chunk in turn.chunks)
        back = sum(chunk.rolled_back for chunk in turn.chunks)
        facts.append(f"chunks: {len(turn.chunks)}, {late} late, {back:.0f} tokens rolled back")
    error = turn.message.get("error")
    if isinstance(error, dict):
        facts.append(f"failed: {plain(error.get('code'))}: {plain(error.get('message'), 200)}")
    return facts
