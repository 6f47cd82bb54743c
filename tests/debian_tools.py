"""Programs for tests that are no Python packages: the system's, or Debian's packages, unpacked in
the user's cache, for which nobody has to be root.

`python -m tests.debian_tools` fetches those of `make test`; a test that needs one fetches it too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headstart" / "tools"
FETCH_TIMEOUT_S = 300


class ToolError(RuntimeError):
    """There is no such program, and none can be fetched."""


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Holds the lock of a folder that is there: of several processes that test, one fetches."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Tool:
    """`packages`: the one of the same name first, then libraries that a small system lacks;
    `programs`: their paths in it; `for_what`: of the tests. `with_dependencies`: all packages that
    these need and the system has not are fetched too, for their versions are the release's."""

    packages: tuple[str, ...]
    programs: tuple[str, ...]
    for_what: str
    with_dependencies: bool = False

    @property
    def folder(self) -> Path:
        return CACHE / self.packages[0]

    @property
    def environment(self) -> dict[str, str]:
        """For programs from the cache, whose libraries lie beside them."""
        folders = ("usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/systemd")
        libraries = [str(path) for pattern in folders for path in sorted(self.folder.glob(pattern))]
        return os.environ | ({"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {})

    def ensure(self) -> list[Path]:
        """The programs. Raises ToolError, never skips."""
        names = [Path(program).name for program in self.programs]
        path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
        found = [shutil.which(name, path=path) for name in names]
        if all(found):
            return [Path(str(program)) for program in found]
        programs = [self.folder / program for program in self.programs]
        if not all(program.is_file() for program in programs):
            CACHE.mkdir(parents=True, exist_ok=True)
            with alone(CACHE):
                if not all(program.is_file() for program in programs):
                    self._fetch()
        return programs

    def _fetch(self) -> None:
        name = self.packages[0]
        if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
            raise ToolError(
                f"the tests of {self.for_what} need {name} on the path "
                f"(Debian: apt-get install {name})"
            )
        print(f"headstart: fetching {name} for tests (once)", flush=True)
        # Put in place as a whole: who finds the programs finds their libraries too.
        with tempfile.TemporaryDirectory(dir=CACHE, prefix=".fetching-") as made:
            folder = Path(made) / name
            folder.mkdir()
            if not self._download(folder):
                _run(folder, "apt-get", "update", "-qq")  # lists that are old, or not there yet
                self._download(folder, must=True)
            for package in folder.glob("*.deb"):
                _run(folder, "dpkg", "-x", package.name, ".", must=True)
                package.unlink()
            for program in self.programs:
                if not (folder / program).is_file():  # or a link to one of another package
                    raise ToolError(f"{name} and what was fetched with it have no {program}")
            shutil.rmtree(self.folder, ignore_errors=True)
            folder.rename(self.folder)

    def _download(self, folder: Path, *, must: bool = False) -> bool:
        """Whether the packages are there now; if they `must` be, ToolError says what is wrong."""
        wanted = set(self.packages)
        if self.with_dependencies:
            # Not --print-uris, which leaves out what is in apt's own cache, if not installed.
            command = ("apt-get", "install", "-qq", "--simulate", "--no-install-recommends")
            listed = _output(folder, *command, *self.packages, must=must)
            if listed is None:
                return False
            # Inst name (version release [architecture])
            lines = [line.split() for line in listed.splitlines()]
            wanted |= {words[1] for words in lines if words[:1] == ["Inst"]}
        return _run(folder, "apt-get", "download", "-qq", *sorted(wanted), must=must)


def _run(folder: Path, *command: str, must: bool = False) -> bool:
    return _output(folder, *command, must=must) is not None


def _output(folder: Path, *command: str, must: bool = False) -> str | None:
    """What it wrote; None if it failed. Raises ToolError if it `must` not."""
    done = subprocess.run(
        command, cwd=folder, timeout=FETCH_TIMEOUT_S, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return done.stdout
    if must:
        raise ToolError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
    return None


PROMETHEUS = Tool(("prometheus",), ("usr/bin/prometheus", "usr/bin/promtool"), "metrics")
HAPROXY = Tool(
    ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1", "libpcre2-8-0"),
    ("usr/sbin/haproxy",),
    "several gateways",
)
SYSTEMD = Tool(
    ("systemd", "libsystemd-shared", "libfdisk1", "libmount1"),
    ("usr/bin/systemd-analyze",),
    "deployment",
)
"""Containers seldom have it."""
ARM_COMPILER = Tool(
    ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"),
    ("usr/bin/aarch64-linux-gnu-gcc", "usr/bin/aarch64-linux-gnu-nm"),
    "64-bit Arm",
    with_dependencies=True,
)
ARM_EMULATOR = Tool(("qemu-user",), ("usr/bin/qemu-aarch64",), "64-bit Arm", with_dependencies=True)
"""`make test-arm` fetches these two, `make test` does not."""


if __name__ == "__main__":
    for tool in (PROMETHEUS, HAPROXY, SYSTEMD):
        print(*tool.ensure())
