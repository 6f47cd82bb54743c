"""`headstart doctor`: what a server will find on this machine, checked before one is started.

Each finding is a line: its mark (ok, note, MISSING), and a sentence with a remedy where it has one.
A note is no obstacle: something is fetched or done without. Nothing is fetched, and no server is
started. What is known of weights comes from the command that knows them, as a process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from headstart import setup_check, setup_torch, web_assets
from headstart.engine.api import host
from headstart.gateway.errors import ConfigError
from headstart.talk.run import STAY_PORT, is_in_use

VOICE = "joe"
MEMORY_BYTES = {"tiny": 1_200_000_000, "small": 2_000_000_000, "medium": 3_000_000_000}
"""What a server with that model takes, with one conversation; `medium`'s is an estimate from its
file's size."""
SPARE_BYTES = 100_000_000
CORES = 2
LIMITED = " (the limit of this container or service)"


@dataclass(frozen=True, slots=True)
class Finding:
    """`mark`: whether a server can start in spite of it."""

    mark: Literal["ok", "note", "MISSING"]
    sentence: str


def findings(model: str, port: int = STAY_PORT) -> list[Finding]:
    """All of this machine, for a packaged model. Raises `ConfigError` for another."""
    if model not in MEMORY_BYTES:
        expected = ", ".join(MEMORY_BYTES)
        remedy = f"for a directory: headstart models info {model}"
        raise ConfigError([f"--model: expected one of {expected}, got {model}; {remedy}"])
    wanted = [*_known_of(model), *_known_of(VOICE)]
    return [
        *_programs(),
        _cores(),
        _memory(model),
        *_weights(model, wanted),
        _port(port),
        _charts(),
    ]


def exit_code(found: list[Finding]) -> int:
    """1 if a server cannot start."""
    return int(any(each.mark == "MISSING" for each in found))


def _programs() -> Iterator[Finding]:
    version = sys.version_info[:2]
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    python = setup_check.python_problem((version[0], version[1]), free_threaded)
    yield _of(python, f"Python {setup_check.dotted(sys.version_info[:3])} at {sys.executable}")
    system = setup_check.system_problem(setup_check.glibc(), sys.maxsize > 2**32)
    yield _of(system, f"{os.uname().sysname} {os.uname().release}, {os.uname().machine}")
    yield _of(setup_check.compiler_problem(), "a C compiler that works")
    yield _torch()


def _torch() -> Finding:
    version = setup_torch.installed()
    if version is None:
        return Finding("MISSING", "PyTorch is not installed: make setup")
    if said := setup_torch.remark():
        return Finding("note", said)
    kind = "built for CPUs" if setup_torch.build_here() == "cpu" else "PyPI's build"
    return Finding("ok", f"PyTorch {version}, {kind}")


def _of(problem: str, good: str) -> Finding:
    return Finding("MISSING", problem) if problem else Finding("ok", good)


def _cores() -> Finding:
    cores, allowed, load = host.usable_cores(), host.allowed_cores(), os.getloadavg()[0]
    said = f"{cores} CPU core{'' if cores == 1 else 's'}, load {load:.1f}"
    if cores < allowed:
        said = f"the time of {cores} of {allowed} CPU cores{LIMITED}, load {load:.1f}"
    if cores < CORES:
        return Finding("note", f"{said}: fewer than {CORES}, so answers may come late")
    if load > allowed:
        return Finding("note", f"{said}: other programs use them, so answers may come late")
    return Finding("ok", said)


def _memory(model: str) -> Finding:
    machine_bytes = psutil.virtual_memory().available
    limited_bytes = host.available_bytes()
    available_bytes = min(machine_bytes, limited_bytes or machine_bytes)
    is_limited = available_bytes < 0.9 * machine_bytes  # they are not read at the same moment
    needed_bytes = MEMORY_BYTES[model]
    said = f"{available_bytes / 1e9:.1f} GB of memory available{LIMITED if is_limited else ''}; "
    said += f"{model} takes about {needed_bytes / 1e9:.1f} GB"
    if available_bytes < needed_bytes:
        remedy = "raise the limit" if is_limited else "end other programs"
        return Finding("MISSING", f"{said}: {remedy}, or use --model tiny")
    return Finding("ok", said)


def _known_of(name: str) -> list[dict[str, Any]]:
    """The weights of a model, or one weight, as `headstart models info NAME --json` has them."""
    argv = [sys.executable, "-P", "-m", "headstart.engine.process.weights_command"]
    done = subprocess.run(
        [*argv, "info", name, "--json"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ConfigError([done.stderr.strip().removeprefix("headstart: ")])
    weights: list[dict[str, Any]] = json.loads(done.stdout)["weights"]
    return weights


def _weights(model: str, wanted: list[dict[str, Any]]) -> Iterator[Finding]:
    root = Path(wanted[0]["path"]).parents[1]
    given = [weight for weight in wanted if weight["in_folder"] and not weight["fetched"]]
    if given:
        names = ", ".join(weight["name"] for weight in given)
        folder = os.environ["HEADSTART_WEIGHTS_FOLDER"]
        yield Finding("ok", f"{names} in {folder}: the first start checks what is in these files")
    absent = [weight for weight in wanted if not weight["fetched"] and not weight["in_folder"]]
    if len(given) == len(wanted):
        return
    if not absent:
        yield Finding("ok", f"weights of {model} and of the voice in {root}")
        return
    needed_bytes = sum(weight["size_bytes"] for weight in absent)
    names = ", ".join(weight["name"] for weight in absent)
    said = f"{needed_bytes / 1e6:.0f} MB of weights are not here yet ({names})"
    yield Finding(
        "note",
        f"{said}: the first start fetches them, or `headstart models fetch NAME` for each",
    )
    yield _room(next(folder for folder in (root, *root.parents) if folder.is_dir()), needed_bytes)


def _room(place: Path, needed_bytes: int) -> Finding:
    if not os.access(place, os.W_OK):
        return Finding("MISSING", f"{place} cannot be written to: set HEADSTART_HOME to a folder")
    left_bytes = shutil.disk_usage(place).free
    said = f"{left_bytes / 1e9:.1f} GB free in {place}"
    if left_bytes < needed_bytes + SPARE_BYTES:
        remedy = "free some, or set HEADSTART_HOME to another disk"
        return Finding("MISSING", f"{said}, the weights need {needed_bytes / 1e9:.1f} GB: {remedy}")
    return Finding("ok", said)


def _port(port: int) -> Finding:
    if is_in_use(port):
        return Finding(
            "note", f"port {port} is in use: `headstart serve --port 0` takes a free one"
        )
    return Finding("ok", f"port {port} is free")


def _charts() -> Finding:
    if web_assets.is_there():
        return Finding("ok", "the dashboard's charts")
    remedy = "`python -m headstart.web_assets` fetches better ones"
    return Finding("note", f"the dashboard draws plain charts: {remedy}")
