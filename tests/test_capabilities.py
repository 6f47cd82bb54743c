"""docs/capabilities.md names tests: they exist, and every row that was asked for is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "capabilities.md"
ASKED = (
    *("A1", "A2", "A3", "B1", "B2", "B9", "B10", "B11", "B13"),
    *("C1", "C2", "C3", "C4", "C6", "C7"),
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


def test_every_named_test_exists() -> None:
    """A test that was renamed or removed shows here."""
    for file, name in NAMED.findall(PAGE.read_text()):
        source = (ROOT / file).read_text()
        assert re.search(rf"^(def {name}\(|{name} = )", source, re.M), f"{file}::{name}"
