"""`headstart doctor`: each obstacle is told with a remedy, and none is made up."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from typer.testing import CliRunner

from headstart import doctor, setup_check, setup_torch
from headstart.cli import build
from headstart.engine.api import host
from headstart.gateway.errors import ConfigError


@pytest.fixture
def port() -> Iterator[int]:
    """One that another program listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def said(found: list[doctor.Finding], mark: str) -> str:
    return "\n".join(each.sentence for each in found if each.mark == mark)


def test_what_only_has_to_be_fetched_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that are absent are named with their size, and nothing is fetched or made."""
    root = tmp_path / "home"
    monkeypatch.setenv("HEADSTART_HOME", str(root))
    found = doctor.findings("tiny")
    assert "MB of weights are not here yet (smollm2-135m, whisper-tiny.en" in said(found, "note")
    assert f"GB free in {tmp_path}" in said(found, "ok")
    assert not root.exists()


def test_obstacles_are_told_with_a_remedy(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiler, memory and disk; a port in use is none, for another will do."""
    monkeypatch.setattr(setup_check, "compiler_problem", lambda: "headstart needs a C compiler")
    monkeypatch.setattr(host, "available_bytes", lambda: 500_000_000)
    little = SimpleNamespace(available=500_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: little)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    monkeypatch.setenv("HEADSTART_HOME", str(tmp_path))
    found = doctor.findings("small", port)
    missing = said(found, "MISSING")
    assert "headstart needs a C compiler" in missing
    assert "0.5 GB of memory available; small takes about 2.0 GB: end other programs" in missing
    assert f"0.0 GB free in {tmp_path}, the weights need 0.7 GB: free some" in missing
    assert f"port {port} is in use: `headstart serve --port 0`" in said(found, "note")
    assert doctor.exit_code(found) == 1


def test_the_limits_of_a_container_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its machine has besides is of no use; the remedy is not to end other programs."""
    monkeypatch.setattr(host, "available_bytes", lambda: 1_000_000_000)
    monkeypatch.setattr(host, "usable_cores", lambda: 1)
    monkeypatch.setattr(host, "allowed_cores", lambda: 64)
    much = SimpleNamespace(available=64_000_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: much)
    found = doctor.findings("small")
    limit = "(the limit of this container or service)"
    assert f"1.0 GB of memory available {limit}; small takes" in said(found, "MISSING")
    assert "2.0 GB: raise the limit, or use --model tiny" in said(found, "MISSING")
    assert f"the time of 1 of 64 CPU cores {limit}" in said(found, "note")


def test_files_of_ones_own_need_not_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HEADSTART_WEIGHTS_FOLDER: what has its size there is named, the rest is absent."""
    monkeypatch.setenv("HEADSTART_HOME", str(tmp_path / "home"))
    before = said(doctor.findings("tiny"), "note")
    (joe,) = doctor._known_of(doctor.VOICE)
    mine = tmp_path / "mine"
    for file in joe["files"]:
        (mine / "joe").mkdir(parents=True, exist_ok=True)
        with (mine / "joe" / file["name"]).open("wb") as made:
            made.truncate(file["size_bytes"])
    monkeypatch.setenv("HEADSTART_WEIGHTS_FOLDER", str(mine))
    found = doctor.findings("tiny")
    assert f"joe in {mine}: the first start checks" in said(found, "ok")
    assert "joe" in before
    assert "joe" not in said(found, "note")
    with (mine / "joe" / joe["files"][0]["name"]).open("ab") as longer:
        longer.write(b"x")
    assert "joe" in said(doctor.findings("tiny"), "note")


@pytest.mark.parametrize(
    ("version", "gpu", "mark", "sentence"),
    [
        ("2.0+cpu", False, "ok", "PyTorch 2.0+cpu, built for CPUs"),
        ("2.0", True, "ok", "PyTorch 2.0, PyPI's build"),
        ("2.0+cpu", True, "note", "`make setup TORCH=cuda` changes that"),
        (None, False, "MISSING", "PyTorch is not installed"),
    ],
)
def test_pytorchs_build_is_told(
    version: str | None, gpu: bool, mark: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for CPUs on a machine with a GPU is no obstacle, but may not be what was wanted."""
    monkeypatch.setattr(setup_torch, "installed", lambda: version)
    monkeypatch.setattr(setup_check, "has_nvidia_gpu", lambda: gpu)
    assert sentence in said(doctor.findings("tiny"), mark)


def test_the_command_prints_a_line_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark first; exit code 1 only where something is missing. Another model is refused by name."""
    found = [doctor.Finding("ok", "a core"), doctor.Finding("note", "a port")]
    monkeypatch.setattr(doctor, "findings", lambda _: found)
    done = CliRunner().invoke(build([]), ["doctor"])
    assert (done.exit_code, done.output) == (0, "ok       a core\nnote     a port\n")
    found.append(doctor.Finding("MISSING", "a compiler"))
    assert CliRunner().invoke(build([]), ["doctor"]).exit_code == 1
    monkeypatch.undo()
    wrong = CliRunner().invoke(build([]), ["doctor", "--model", "nix"])
    assert isinstance(wrong.exception, ConfigError)
    assert "expected one of tiny, small, medium, got nix" in str(wrong.exception)
