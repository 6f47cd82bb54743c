"""Prometheus and promtool for tests: the system's, or Debian's package, unpacked in the user's
cache, for which nobody has to be root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headstart" / "tools"
FETCH_TIMEOUT_S = 300


class PrometheusError(RuntimeError):
    """There is no Prometheus, and none can be fetched."""


def ensure() -> tuple[Path, Path]:
    """`prometheus` and `promtool`. Raises PrometheusError, never skips."""
    found = [shutil.which(name) for name in ("prometheus", "promtool")]
    if all(found):
        return Path(str(found[0])), Path(str(found[1]))
    folder = CACHE / "prometheus"
    tools = folder / "usr" / "bin" / "prometheus", folder / "usr" / "bin" / "promtool"
    if not all(tool.is_file() for tool in tools):
        _fetch(folder)
    return tools


def _fetch(folder: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise PrometheusError(
            "the tests of metrics need prometheus and promtool on the path "
            "(Debian: apt-get install prometheus)"
        )
    print("headstart: fetching prometheus for tests (20 MB, once)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if not _run(folder, "apt-get", "download", "-qq", "prometheus"):
        _run(folder, "apt-get", "update", "-qq")  # lists that are old, or not there yet
        _run(folder, "apt-get", "download", "-qq", "prometheus", must=True)
    for package in folder.glob("*.deb"):
        _run(folder, "dpkg", "-x", package.name, ".", must=True)
        package.unlink()


def _run(folder: Path, *command: str, must: bool = False) -> bool:
    done = subprocess.run(
        command, cwd=folder, timeout=FETCH_TIMEOUT_S, capture_output=True, text=True, check=False
    )
    if must and done.returncode != 0:
        raise PrometheusError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")
    return done.returncode == 0


if __name__ == "__main__":
    print(*ensure())
