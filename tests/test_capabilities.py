"""docs/capabilities.md names tests: they exist, and every row that was asked for is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "capabilities.md"
ASKED = (
    *(f"A{number}" for number in range(1, 4)),
    *("B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9", "B10", "B11", "B12", "B13"),
    *(f"C{number}" for number in range(1, 8)),
)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_row_names_a_test() -> None:
    """One line for each capability, with at least one test in it."""
    rows = {
        line.split("|")[1].strip(): line
        for line in PAGE.read_text().splitlines()
        if re.match(r"\| [A-C]\d+ \|", line)
    }
    assert tuple(rows) == ASKED
    assert all(NAMED.search(line) for line in rows.values())


def test_scheduling_rows_name_a_test_or_are_missing() -> None:
    """One line for each of D2 to D9; one that nobody built says so."""
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"\| D\d+ \|", line)]
    assert [row.split("|")[1].strip() for row in rows] == [f"D{n}" for n in range(2, 10)]
    for row in rows:
        assert NAMED.search(row) or row.split("|")[3].strip() == "not built", row


def test_every_named_test_exists() -> None:
    """A test that was renamed or removed shows here."""
    for file, name in NAMED.findall(PAGE.read_text()):
        source = (ROOT / file).read_text()
        assert re.search(rf"^((async )?def {name}\(|{name} = )", source, re.M), f"{file}::{name}"
