"""Debian's packages as programs for tests, fetched by stand-ins for apt-get and dpkg."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests import debian_tools
from tests.debian_tools import Tool, ToolError, alone
from tests.kernels.arm import run

TOOL = Tool(("thing-of-nobody",), ("usr/bin/thing-of-nobody",), "nothing", with_dependencies=True)
LISTS = """#!/bin/sh
PATH=/usr/bin:/bin
echo "$@" >> calls
case $1 in
install) case "$*" in  # the library is in apt's cache: --print-uris leaves it out
    *--simulate*) echo "Inst libthing (1:2 Debian:12 [all])"; echo "Conf libthing (1:2)" ;;
    esac ;;
download) shift; for name; do [ "$name" = -qq ] || : > "$name"_1.deb; done ;;
esac
"""
UNPACKS = """#!/bin/sh
PATH=/usr/bin:/bin
mkdir -p usr/bin; name=${2%_1.deb}; : > usr/bin/"$name"
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All that there is on the path; the cache is empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(debian_tools, "CACHE", tmp_path / "cache")
    return folder


def install(folder: Path, **scripts: str) -> None:
    for name, text in scripts.items():
        path = folder / name.replace("_", "-")
        path.write_text(text)
        path.chmod(0o755)


def test_what_a_package_needs_is_fetched_with_it(programs: Path) -> None:
    """Found again afterwards without asking, and nothing half fetched lies beside it."""
    install(programs, apt_get=LISTS, dpkg=UNPACKS)
    (path,) = TOOL.ensure()
    assert sorted(p.name for p in path.parent.iterdir()) == ["libthing", "thing-of-nobody"]
    assert [p.name for p in debian_tools.CACHE.iterdir()] == [TOOL.packages[0]]
    for script in programs.iterdir():
        script.unlink()
    assert TOOL.ensure() == [path]


def test_a_program_that_leads_nowhere_is_not_kept(programs: Path) -> None:
    """Its link is to a file of a package that was not fetched: that is said, and tried again the
    next time, instead of being taken for the program."""
    install(programs, apt_get=LISTS, dpkg=UNPACKS.replace(": >", "ln -sf missing"))
    with pytest.raises(ToolError, match=r"thing-of-nobody .* have no usr/bin/thing-of-nobody"):
        TOOL.ensure()
    assert not list(debian_tools.CACHE.iterdir())


def test_of_several_processes_one_fetches(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one waits, and takes what is there then: here it could fetch nothing."""
    asked = threading.Event()

    def asks(folder: Path) -> AbstractContextManager[None]:
        asked.set()
        return alone(folder)

    monkeypatch.setattr(debian_tools, "alone", asks)
    debian_tools.CACHE.mkdir()
    with ThreadPoolExecutor(1) as pool:
        with alone(debian_tools.CACHE):
            other = pool.submit(TOOL.ensure)
            assert asked.wait(60)
            path = TOOL.folder / TOOL.programs[0]
            path.parent.mkdir(parents=True)
            path.touch()
            assert not other.done()
        assert other.result(60) == [path]


@pytest.mark.parametrize("fails", ["install", "download"])
def test_a_failure_says_what_apt_says(fails: str, programs: Path) -> None:
    """Also where the list of dependencies cannot be made; nothing is left in the cache."""
    says = f'[ "$1" = {fails} ] && echo "E: no such network" >&2 && exit 100\n'
    install(programs, apt_get=LISTS.replace("case", says + "case"), dpkg=UNPACKS)
    wanted = rf"{fails} .*thing-of-nobody.* failed:\nE: no such network"
    with pytest.raises(ToolError, match=wanted):
        TOOL.ensure()
    assert not list(debian_tools.CACHE.iterdir())


def test_without_a_compiler_for_arm_no_test_begins(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make test-arm` on a machine without apt-get: one sentence, not a failure of every test."""
    monkeypatch.setattr(run, "ARM_COMPILER", TOOL)
    assert run.main() == 2
    out = capsys.readouterr()
    assert "apt-get install thing-of-nobody" in out.err
    assert "qemu's" not in out.out


def test_a_missing_browser_is_said_in_one_line(tmp_path: Path) -> None:
    """To a user who may not install it: what to install, and no traceback."""
    kept = {name: value for name, value in os.environ.items() if name != "CHROMIUM"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.web_demo.chromium"],
        env=kept | {"PATH": str(tmp_path)},
        cwd=Path(__file__).resolve().parents[1],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("headstart: the browser tests need Chromium: install it")
    assert len(done.stderr.splitlines()) == 1
