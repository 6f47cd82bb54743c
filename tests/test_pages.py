"""README and docs/: links lead somewhere, every page can be found, and the README stays short."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README_BYTES_MAX = 12 * 1024
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
NAMED = re.compile(r"(?<![\w/])docs/([a-z0-9_/-]+\.md)(?:#([a-z0-9-]+))?")  # no part of an address


def pages() -> list[Path]:
    """All pages that git knows or will know."""
    return files("*.md")


def files(*patterns: str) -> list[Path]:
    """Files that git knows or will know."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def text_of(page: Path) -> str:
    """Without code."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


def links(page: Path) -> list[tuple[Path, str]]:
    """Files that a page links to, and the anchors in them."""
    found = []
    for groups in LINK.findall(text_of(page)):
        target = groups[0] or groups[1]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found.append(((page.parent / name).resolve() if name else page, anchor))
    return found


def test_every_link_leads_somewhere() -> None:
    """To a file or folder that is there, and to a heading of it."""
    broken = []
    for page in pages():
        for path, anchor in links(page):
            if not path.exists() or (anchor and anchor not in anchors(path)):
                broken.append(f"{page.relative_to(ROOT)}: {path.name}#{anchor}")
    assert broken == []


def test_code_names_pages_that_exist() -> None:
    """Help texts, errors, comments and deploy files send readers to pages of docs/."""
    broken = []
    for path in files(":!*.md"):
        try:
            text = path.read_text()
        except UnicodeDecodeError:  # pictures, sound, weights
            continue
        for name, anchor in NAMED.findall(text):
            page = ROOT / "docs" / name
            if not page.exists() or (anchor and anchor not in anchors(page)):
                broken.append(f"{path.relative_to(ROOT)}: docs/{name}#{anchor}")
    assert broken == []


def test_every_page_of_docs_is_reached_from_the_readme() -> None:
    """By links, one or several."""
    seen: set[Path] = set()
    left = [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        left += [path for path, _ in links(page)]
    assert sorted(p.name for p in (ROOT / "docs").glob("*.md") if p not in seen) == []


def test_every_page_of_docs_is_in_the_index() -> None:
    """docs/README.md links each page itself: a reader is there in one step."""
    index = ROOT / "docs" / "README.md"
    listed = {path for path, _ in links(index)}
    pages_of_docs = [page for page in pages() if page.is_relative_to(ROOT / "docs")]
    assert sorted(p.name for p in pages_of_docs if p not in listed | {index}) == []


def test_the_readme_is_short() -> None:
    """What it is, a picture, two commands, numbers, and where to read on."""
    assert len((ROOT / "README.md").read_bytes()) <= README_BYTES_MAX
