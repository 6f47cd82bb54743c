"""Commands that pages name exist, and have the options that stand behind them."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator

import pytest
import typer

from headstart import cli
from tests.test_pages import ROOT, pages

DATED = {"CHANGELOG.md", "docs/log.md"}
"""They name what was there on their day."""
SPAN = re.compile(r"`(?:\.venv/bin/)?(headstart [a-z][^`\n]*)`")
BLOCK = re.compile(r"```.*?```", re.DOTALL)
LINE = re.compile(r"^(?:\w+=\S+ )*(?:\.venv/bin/)?(headstart [a-z].*)$", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
ERROR = "headstart needs"
"""How messages of set-up begin; docs/troubleshooting.md quotes them."""


def commands(command: typer.core.TyperGroup, name: str) -> Iterator[tuple[str, set[str]]]:
    """A command and all below it: its words, and the options that its help lists."""
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    yield name, {"--help", *(text for each in shown for text in each.opts + each.secondary_opts)}
    for word, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {word}")


@pytest.fixture(scope="module")
def options() -> dict[str, set[str]]:
    """By command: "headstart bench live"."""
    found = dict(commands(typer.main.get_command(cli.build([])), "headstart"))  # type: ignore[arg-type]
    for entry in importlib.metadata.entry_points(group=cli.PLUGIN_GROUP):
        command = typer.main.get_command(entry.load())
        found |= commands(command, f"headstart {entry.name}")  # type: ignore[arg-type]
    return found


def named(text: str) -> list[str]:
    """Command lines in a page, without comments."""
    lines = [line for block in BLOCK.findall(text) for line in LINE.findall(block)]
    return [re.sub(r"\s#.*", "", line) for line in SPAN.findall(text) + lines]


def faults(line: str, options: dict[str, set[str]]) -> list[str]:
    """What a command line names that is not there. `headstart models list\\|fetch` names two
    commands; `headstart bench NAME --json` any below, of which one has to have the option."""
    name, words = "headstart", line.split()[1:]
    while words and any(command.startswith(f"{name} ") for command in options):
        below = [f"{name} {word.rstrip(',;:…')}" for word in words.pop(0).split("\\|")]
        if below[0].split()[-1] == "NAME":
            any_of = [options[each] for each in options if each.startswith(f"{name} ")]
            return [o for o in OPTION.findall(line) if o not in set().union(*any_of)]
        if gone := [each for each in below if each not in options]:
            return gone
        name = below[0]
    return [f"{name} {option}" for option in OPTION.findall(line) if option not in options[name]]


def test_commands_and_options_on_pages_exist(options: dict[str, set[str]]) -> None:
    """As help lists them: an option that it hides is not for readers either."""
    wrong = []
    for page in pages():
        name = str(page.relative_to(ROOT))
        lines = [] if name in DATED else named(page.read_text())
        for line in lines:
            if not line.startswith(ERROR):
                wrong += [f"{name}: {fault}" for fault in faults(line, options)]
    assert wrong == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("headstart bench live --sessions 8", []),
        ("headstart bench live --speakers 8", ["headstart bench live --speakers"]),
        ("headstart bench lively", ["headstart bench lively"]),
        ("headstart bench NAME --json", []),
        ("headstart bench NAME --jsonl", ["--jsonl"]),
        ("headstart models list\\|fetsh NAME", ["headstart models fetsh"]),
        ("headstart talk FILE --sampler motion", ["headstart talk --sampler"]),
        ("headstart listen", ["headstart listen"]),
    ],
)
def test_what_is_not_there_is_named(
    line: str, expected: list[str], options: dict[str, set[str]]
) -> None:
    """Commands, commands of a command, and options, hidden ones among them."""
    assert faults(line, options) == expected
