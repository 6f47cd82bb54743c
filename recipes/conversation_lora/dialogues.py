"""Training dialogues, validated, and checked not to contain the benchmark's questions."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headstart.engine.api import Tool, ToolCall

FOLDER = Path(__file__).parent / "dialogues"
TAUGHT = FOLDER / "taught"
"""Facts that the base model mostly does not know."""
KNOWN = FOLDER / "known"
"""Facts that the base model knows, in its own words, and more on everyday life and light."""
LIGHT = FOLDER / "light"
"""Questions about darkness and brightness."""
TOOLS = FOLDER / "tools"
"""Dialogues with function calls."""
DEFINED = Path(__file__).parent / "tools.toml"
"""Definitions of the functions that dialogues may call."""
QUESTIONS = Path(__file__).parents[2] / "benchmarks" / "inputs" / "questions.toml"
OFF = "off"
MOST_ALIKE = 0.6
_NOTE = re.compile(r"\[camera: [^\[\]]+\]")
_WORDS = re.compile(r"[a-z]+|\d+")
_COUNTED = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty
"""
_NUMBERS = _COUNTED.split()
# Words that do not contribute to a question's topic.
_COMMON = """
a an and are at can could did do does for how i in is it me much my of on or s so tell that the
there they this to was what when where which who why will with would you your
"""
_EMPTY = frozenset(_COMMON.split())


@dataclass(frozen=True, slots=True)
class Result:
    """Output of a called function, as JSON; it takes the place of a user's words."""

    output: str


@dataclass(frozen=True, slots=True)
class Turn:
    """`note`: a new camera note just before these words, or ""."""

    note: str
    said: str | Result
    answer: str | ToolCall


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A conversation to learn from; `kind`: what it teaches, as its line says."""

    kind: str
    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...] = ()

    @property
    def sees(self) -> bool:
        """Whether a picture is in the context."""
        return any(turn.note for turn in self.turns)


def load(*folders: Path) -> list[Dialogue]:
    """All dialogues of the folders' files, ordered by name and line; default: FOLDER, used in every
    fit. Raises `ValueError` naming a line that is malformed or asks a benchmark question."""
    asked = [content(question) for question in questions()]
    return [
        _dialogue(json.loads(line), f"{path.name}:{number}", asked)
        for folder in folders or (FOLDER,)
        for path in sorted(folder.glob("*.jsonl"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
    ]


def questions() -> Iterator[str]:
    """The questions of `headstart bench answers`."""
    for dialog in tomllib.loads(QUESTIONS.read_text())["dialog"]:
        yield from (question["say"] for question in dialog["ask"])


def content(text: str) -> frozenset[str]:
    """The content words of `text`; numbers up to twenty are spelt out."""
    words = _WORDS.findall(text.lower())
    spelt = (_NUMBERS[int(w)] if w.isdigit() and int(w) < len(_NUMBERS) else w for w in words)
    return frozenset(spelt) - _EMPTY


def alike(a: frozenset[str], b: frozenset[str]) -> float:
    """Jaccard similarity, 0 to 1; 0 for questions with different numbers."""
    numbers = frozenset(_NUMBERS)
    if a & numbers != b & numbers:
        return 0.0
    return len(a & b) / len(a | b) if a | b else 0.0


def _dialogue(line: dict[str, Any], where: str, asked: list[frozenset[str]]) -> Dialogue:
    kind, camera, turns = line.get("kind"), line.get("camera"), line.get("turns")
    if not (isinstance(kind, str) and isinstance(camera, str) and isinstance(turns, list)):
        raise ValueError(f"{where}: expected kind, camera and turns, got {sorted(line)}")
    seen = "" if camera == OFF else camera
    defined = _defined()
    unknown = sorted(set(line.get("tools", ())) - set(defined))
    if unknown:
        raise ValueError(f"{where}: tools.toml defines no {unknown}")
    tools = tuple(defined[name] for name in line.get("tools", ()))
    read = []
    for said, answer, *later in turns:
        note = later[0] if later else seen
        if note and not _NOTE.fullmatch(note):
            raise ValueError(f"{where}: expected a note like [camera: ...], got {note!r}")
        about = content(said) if isinstance(said, str) else frozenset()
        if len(about) > 1 and max(alike(about, one) for one in asked) >= MOST_ALIKE:
            raise ValueError(f"{where}: {said!r} is a question of the benchmark")
        read.append(Turn(note, _said(said), _answer(answer, tools, where)))
        seen = ""
    if not read:
        raise ValueError(f"{where}: expected at least one turn")
    return Dialogue(kind, tuple(read), tools)


def _said(said: str | dict[str, Any]) -> str | Result:
    return said if isinstance(said, str) else Result(json.dumps(said["result"]))


def _answer(answer: str | dict[str, Any], tools: Collection[Tool], where: str) -> str | ToolCall:
    if isinstance(answer, str):
        return answer
    if answer["call"] not in {tool.name for tool in tools}:
        raise ValueError(f"{where}: {answer['call']} is called, but is not among its tools")
    return ToolCall(answer["call"], json.dumps(answer["arguments"]))


@cache
def _defined() -> dict[str, Tool]:
    read = tomllib.loads(DEFINED.read_text())
    return {name: Tool(name, t["description"], t["parameters"]) for name, t in read.items()}
