"""The peers' environments: virtual environments with pinned packages, made once.

Each has a complete list of versions in `requirements/`; nothing else is installed. An installation
that was interrupted goes on where it was: pip skips what is there, and keeps what it has
downloaded.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headstart.benchmarks import report

LISTS = Path(__file__).with_name("requirements")
STAMP = ".installed"
EACH = 10
"""Packages per line of progress."""
TAIL_LINES = 8
_COLLECTING = re.compile(r"(?:Collecting|Requirement already satisfied:) (\S+)")


class EnvironmentFailed(RuntimeError):
    """An environment could not be made."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        super().__init__(f"the environment {name!r} could not be made: {reason}")


@dataclass(frozen=True)
class Environments:
    """Environments in `folder`, one a name of `requirements/`."""

    folder: Path
    lists: Path = LISTS

    def python(self, name: str) -> Path:
        """The absolute path of its interpreter; the environment is made if it is not there or its
        list has changed. Raises `EnvironmentFailed`."""
        place = (self.folder / name).absolute()
        wanted = self.lists / f"{name}.txt"
        stamp = place / STAMP
        digest = fingerprint(wanted)
        if not stamp.exists() or stamp.read_text() != digest:
            stamp.unlink(missing_ok=True)
            self._make(name, place, wanted)
            stamp.write_text(digest)
        return place / "bin" / "python"

    def site(self, name: str) -> Path:
        """Where its packages are. Raises `EnvironmentFailed`."""
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        python = str(self.python(name))
        done = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True)
        return Path(done.stdout.strip())

    def _make(self, name: str, place: Path, wanted: Path) -> None:
        report.say(f"{name}: making its environment in {place} (once)")
        place.parent.mkdir(parents=True, exist_ok=True)
        # without pip's resolver: the list is complete, and some of what a package names as needed
        # is for parts that are not used and has no wheel here
        install = ["-m", "pip", "install", "--no-deps", "--progress-bar", "off", "-r", str(wanted)]
        try:
            subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
            _follow(name, [str(place / "bin" / "python"), *install], len(list(packages(wanted))))
        except (subprocess.CalledProcessError, OSError) as error:
            raise EnvironmentFailed(name, str(error)) from error


def _follow(name: str, command: list[str], packages_: int) -> None:
    """Run pip and tell how far it is. Raises `EnvironmentFailed` with its last lines."""
    tail: list[str] = []
    collected = 0
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert process.stdout is not None
    for line in process.stdout:
        tail = [*tail, line.rstrip()][-TAIL_LINES:]
        if _COLLECTING.match(line.strip()):
            collected += 1
            if collected % EACH == 0:
                report.say(f"{name}: {collected} of {packages_} packages")
        elif line.startswith("Installing"):
            report.say(f"{name}: installing")
    if process.wait() != 0:
        raise EnvironmentFailed(name, "; ".join(tail))


def packages(wanted: Path) -> Iterator[str]:
    """The requirements of a list, without comments."""
    for line in wanted.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.strip()


def fingerprint(wanted: Path) -> str:
    """Of a list and the Python that it is for."""
    version = ".".join(map(str, sys.version_info[:2]))
    return hashlib.sha256(version.encode() + wanted.read_bytes()).hexdigest()
