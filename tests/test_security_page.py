"""docs/security.md: each promise names its test, and each named test is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "security.md"
PROMISING = ("As it comes", "Keys", "What one client cannot do to the others", "Between sessions")
NAMED = re.compile(r"`(test_\w+)`")


def all_tests() -> set[str]:
    """The names of all tests."""
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def promises() -> Iterator[str]:
    """Of the sections that promise: paragraphs and items that end in a sentence of their own, and
    the table's rows. What only leads to a list or to code ends in a colon or a comma."""
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        if title not in PROMISING:
            continue
        text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for block in re.split(r"\n\n|\n(?=[-|] ?)", text):
            block = block.strip()
            is_head = block.startswith(("|---", "| it may"))
            if block and not is_head and not block.endswith((":", ",")):
                yield block


def test_each_promise_names_its_test() -> None:
    """A line without one is a hope."""
    assert len(list(promises())) > 20
    assert [block[:80] for block in promises() if NAMED.search(block) is None] == []


def test_each_named_test_is_there() -> None:
    """A test that was renamed or removed is missed here."""
    named = set(NAMED.findall(PAGE.read_text()))
    assert len(named) > 50
    assert named - all_tests() == set()
