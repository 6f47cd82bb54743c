"""docs/capabilities.md names tests: they exist, and every row that was asked for is there."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from headstart.benchmarks.cli import app as bench
from headstart.cli import build
from headstart.gateway.protocol.extensions import GatewayOptions
from headstart.gateway.settings import Settings
from headstart.gateway.telemetry.latency import STAGES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "capabilities.md"
ASKED = (
    *(f"A{number}" for number in range(1, 5)),
    *("B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9", "B10", "B11", "B12", "B13"),
    *(f"C{number}" for number in range(1, 8)),
)
SCHEDULING = tuple(f"D{number}" for number in range(1, 11))
WRITTEN = "19.12"  # of issue 19, which no article has
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def first_part() -> str:
    """What is before the table of switches."""
    return PAGE.read_text().partition("## Switch, stage, effect")[0]


def test_every_row_names_a_test() -> None:
    """One line for each capability, with at least one test in it."""
    rows = {
        line.split("|")[1].strip(): line
        for line in first_part().splitlines()
        if re.match(r"\| [A-C]\d+ \|", line)
    }
    assert tuple(rows) == ASKED
    assert all(NAMED.search(line) for line in rows.values())


def test_scheduling_rows_name_a_test() -> None:
    """One line for each of D1 to D10."""
    rows = [line for line in first_part().splitlines() if re.match(r"\| D\d+ \|", line)]
    assert tuple(row.split("|")[1].strip() for row in rows) == SCHEDULING
    for row in rows:
        assert NAMED.search(row), row


def test_every_named_test_exists() -> None:
    """A test that was renamed or removed shows here."""
    for file, name in NAMED.findall(PAGE.read_text()):
        source = (ROOT / file).read_text()
        assert re.search(rf"^((async )?def {name}\(|{name} = )", source, re.M), f"{file}::{name}"


def effects() -> dict[str, list[str]]:
    """Switch, stage and effect of each capability."""
    table = PAGE.read_text().partition("## Switch, stage, effect")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return {row[0]: row[1:] for row in rows if len(row) == 4 and re.match(r"[A-D1]\d*", row[0])}


def test_every_capability_has_its_switch_stage_and_effect() -> None:
    """Switches are settings or options, stages those of the latency budget; nothing is left out."""
    assert set(effects()) == {*ASKED, *SCHEDULING, WRITTEN}
    options = (ROOT / "engine" / "process" / "options.py").read_text()
    commands = get_command(build([])).commands  # type: ignore[attr-defined]
    for row, (switch, stage, effect) in effects().items():
        for name in re.findall(r"`([^`]+)`", switch):
            command, *arguments = name.split()
            if command in commands:
                shown = [each for each in commands[command].params if not each.hidden]
                assert set(arguments) <= {text for each in shown for text in each.opts}, name
            elif name.startswith("--"):
                assert f'"{name}"' in options, name
            else:
                assert name in {*Settings.model_fields, *GatewayOptions.model_fields}, name
        assert set(re.findall(r"`(\w+)`", stage)) <= set(STAGES), stage
        assert all((switch, stage, effect)), row


def test_every_benchmark_that_is_named_exists() -> None:
    """As a command of `headstart bench`."""
    known = set(get_command(bench).commands)  # type: ignore[attr-defined]
    named = set(re.findall(r"headstart bench ([\w-]+)", PAGE.read_text()))
    assert named <= known, named - known
