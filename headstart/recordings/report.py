"""A comparison for people: what was set differently, then the stages, then the verdict."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headstart.recordings.compare import NEEDED, SMALL_N, Comparison, Figure, Row, Run, label
from headstart.recordings.faces import UNKNOWN, plain
from headstart.recordings.stages import TOTALS

TINY_MS = 1.0


def print_report(comparison: Comparison, console: Console) -> None:
    """Both runs, a row for each stage, and the verdict."""
    for name, run in (("A", comparison.a), ("B", comparison.b)):
        console.print(Text(f"{name}  {_about(run)}"))
    _settings(comparison, console)
    console.print(Text(_pairing(comparison)))
    console.print(_table(comparison))
    tiny = [plain(row.stage, 14) for row in comparison.rows if _is_tiny(row)]
    if tiny:
        console.print(Text(f"Below {TINY_MS:g} ms in both: {', '.join(tiny)}.", style="dim"))
    if comparison.is_small:
        console.print(Text(_small(comparison), style="yellow"))
    console.print(_verdict(comparison))


def _about(run: Run) -> str:
    out = [f"{n} {name.replace('_', ' ')}" for name, n in run.left_out.items() if n]
    missed = f"; {run.missed} messages of the feed are missing" if run.missed else ""
    left_out = f", left out: {', '.join(out)}" if out else ""
    return f"{plain(run.name)}: {len(run.samples)} of {run.turns} turns count{left_out}{missed}"


def _settings(comparison: Comparison, console: Console) -> None:
    if not comparison.settings:
        console.print("The settings are the same.")
        return
    table = Table(title="Set differently", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("", "A", "B"):
        table.add_column(name, overflow="fold")
    for name, a, b in comparison.settings:
        table.add_row(Text(plain(name)), Text(_value(a)), Text(_value(b)))
    console.print(table)


def _value(value: Any) -> str:
    return "not set" if value is None else plain(json.dumps(value, ensure_ascii=False), 60)


def _pairing(comparison: Comparison) -> str:
    if comparison.pairs:
        return f"{comparison.pairs} pairs of turns of the same clips, drawn together."
    return "Not paired: too few turns of the same clips. The runs are compared as they are."


def _table(comparison: Comparison) -> Table:
    quantiles = [q for q in NEEDED if any(row.figures[q] is not None for row in comparison.rows)]
    table = Table(
        title="ms; change B - A [95 % interval]",
        title_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    table.add_column("stage", no_wrap=True)
    table.add_column("n", justify="right")
    table.add_column("", no_wrap=True)
    for name in ("A", "B", "change", "interval", "%"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in comparison.rows:
        if _is_tiny(row):
            continue
        shown = [(q, row.figures[q]) for q in quantiles if row.figures[q] is not None]
        if not shown:
            table.add_row(_name(row), _n(row), "too few")
        for at, (q, figure) in enumerate(shown):
            assert figure is not None
            first = (_name(row), _n(row)) if at == 0 else ("", "")
            table.add_row(*first, label(q), *_cells(figure), style=_style(figure, comparison))
    return table


def _is_tiny(row: Row) -> bool:
    """No stage that anybody needs to read about; `--json` has it."""
    figures = [figure for figure in row.figures.values() if figure is not None]
    return bool(figures) and all(max(figure.a, figure.b) < TINY_MS for figure in figures)


def _name(row: Row) -> Text:
    name = TOTALS.get(row.stage, row.stage)
    return Text(plain(name, 14), style="bold" if row.stage in TOTALS else "")


def _n(row: Row) -> str:
    return str(row.n_a) if row.n_a == row.n_b else f"{row.n_a}/{row.n_b}"


def _cells(figure: Figure) -> tuple[str, ...]:
    percent = figure.change_percent
    return (
        f"{figure.a:,.1f}",
        f"{figure.b:,.1f}",
        f"{figure.change:+,.1f}",
        f"{figure.low:+,.1f} … {figure.high:+,.1f}",
        UNKNOWN if percent is None else f"{percent:+.0f}",
    )


def _style(figure: Figure, comparison: Comparison) -> str:
    if figure.is_slower(comparison.fail_over_percent):
        return "red"
    return "green" if figure.high < 0 else ""


def _small(comparison: Comparison) -> str:
    counts = [len(comparison.a.samples), len(comparison.b.samples)]
    n = min([*counts, comparison.pairs] if comparison.pairs else counts)
    return f"n = {n}: below {SMALL_N} there is no p99, and small differences do not show."


def _verdict(comparison: Comparison) -> Text:
    limit = f"{comparison.fail_over_percent:g} % with the whole interval above 0"
    if not comparison.slower:
        return Text(f"B is not slower than A: nothing by more than {limit}.", style="bold")
    named = ", ".join(f"{TOTALS[stage]} {label(q)}" for stage, q in comparison.slower)
    return Text(f"B is slower by more than {limit}: {named}.", style="bold red")
