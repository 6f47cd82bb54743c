"""docs/tree.md: generated, and up to date."""

from __future__ import annotations

from tests.source_tree import FOLDERS, PAGE, ROOT, SUFFIXES, first_line, render


def test_the_page_is_up_to_date() -> None:
    """`python -m tests.source_tree` writes it anew."""
    assert PAGE.read_text() == render()


def test_every_source_says_what_it_is() -> None:
    """In its first line, which is not empty."""
    silent = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES and "__pycache__" not in path.parts and not first_line(path)
    ]
    assert silent == []
