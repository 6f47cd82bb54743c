"""A stage of the benchmark: a process of its own with a limit of time, which writes lines of JSON.

So a hang, a fault of the driver or a lack of memory loses what the stage had still to measure, and
no more: its lines are there, and the next stage starts with a new process on the device.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GRACE_S = 5.0
"""Beyond its limit, in which a process ends by itself."""
KILLED_S = 10.0
ERROR_CHARS = 600
INCOMPLETE = 3
"""Exit code of a stage that measured something, and not all."""


class Lines:
    """A file of JSON objects, one a line, each on disk when `add` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, row: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> list[dict[str, Any]]:
        """All whole lines; a process that was killed may have left half a one."""
        if not self._path.exists():
            return []
        rows = []
        for line in self._path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows


def end_in(seconds: float) -> None:
    """Have the kernel end this process then, even if it hangs in a driver's call."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.1))


def add_limit(parser: argparse.ArgumentParser, limit_s: float) -> None:
    """The options that every stage takes. `limit_s`: by default."""
    parser.add_argument("--out", type=Path, required=True, help="file of rows")
    parser.add_argument("--limit-s", type=float, default=limit_s, help="of the whole process")
    began = "when the process was started, by the system's monotonic clock"
    parser.add_argument("--began-s", type=float, default=time.monotonic(), help=began)


def left_of(given: argparse.Namespace) -> float:
    """Seconds that are left of a stage's limit: its imports have taken some."""
    return float(given.limit_s - (time.monotonic() - given.began_s))


@dataclass(frozen=True, slots=True)
class Stage:
    """`module` is run with `arguments` and the options of `add_limit`. `share`: of the time that is
    left, beside other stages."""

    name: str
    module: str
    arguments: tuple[str, ...]
    share: float


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a stage. `error`: None if it measured all it had to."""

    rows: list[dict[str, Any]]
    seconds: float
    error: str | None


def run(stage: Stage, folder: Path, limit_s: float) -> Ended:
    """Run a stage to its end, or to its limit."""
    out, log = rows_file(stage, folder), folder / f"{stage.name}.log"
    began_s = time.monotonic()
    argv = [sys.executable, "-m", stage.module, *stage.arguments, "--out", str(out)]
    argv += ["--limit-s", f"{limit_s:.1f}", "--began-s", f"{began_s:.3f}"]
    # What a stage that is killed leaves behind goes with the folder.
    env = {**os.environ, "TMPDIR": str(folder)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, stdout=output, stderr=output, start_new_session=True, env=env
        )
        try:
            code: int | None = process.wait(limit_s + GRACE_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                _kill(process)
    took_s = time.monotonic() - began_s
    return Ended(Lines(out).read(), took_s, _error(code, log, limit_s))


def rows_file(stage: Stage, folder: Path) -> Path:
    """Where a stage writes its rows."""
    return folder / f"{stage.name}.jsonl"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The whole group. One that hangs in the driver may not end at all; nobody waits for it."""
    os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(KILLED_S)


def _error(code: int | None, log: Path, limit_s: float) -> str | None:
    if code == 0:
        return None
    if code is None or code == -signal.SIGALRM:
        return f"not done within {limit_s:.0f} s"
    if code == INCOMPLETE:
        return "not all was right, or reached: see its rows"
    said = log.read_text(errors="replace").strip()[-ERROR_CHARS:]
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return f"{how}: {said}" if said else how
