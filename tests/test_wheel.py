"""The wheel: what it puts into an environment, and that it works there from any folder.

Everything is built offline, from a copy of the project as it is, and installed into an environment
of its own; that one has the dependencies of the environment in which the tests run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from headstart.kernels import native

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("headstart", "gateway", "engine", "kernels", "benchmarks", "recipes", "web-demo")
FILES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")
TIMEOUT_S = 60
SHADOWS = ("numpy", "random", "torch", "typer", "headstart")
"""A folder's own files of these names are imported by nobody who works in it."""


def run(
    argv: Sequence[str | Path], cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done


def build(kind: str, source: Path, folder: Path) -> Path:
    """What the build's backend makes of the project in `source`: "wheel" or "sdist"."""
    folder.mkdir()
    code = f"import sys; from setuptools import build_meta as b; b.build_{kind}(sys.argv[1])"
    run([sys.executable, "-c", code, folder], source)
    (made,) = folder.iterdir()
    return made


@dataclass(frozen=True)
class Installed:
    """An environment with nothing but the wheel, and the wheel."""

    wheel: Path
    source: Path
    packages: Path
    command: Path
    elsewhere: Path
    cache: Path

    def headstart(self, *arguments: str | Path) -> str:
        """What the command says on stdout, called from a folder that has traps in it."""
        return run([self.command, *arguments], self.elsewhere, **self.environment).stdout

    @property
    def environment(self) -> dict[str, str]:
        return {"XDG_CACHE_HOME": str(self.cache), "HEADSTART_VOICE": "none", "PYTHONPATH": ""}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    source, place = folder / "source", folder / "environment"
    source.mkdir()
    for name in FILES:
        shutil.copy(ROOT / name, source)
    for name in PARTS:
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=unwanted)
    wheel = build("wheel", source, folder / "wheels")
    run([sys.executable, "-m", "venv", "--without-pip", place], folder)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--python",
        place / "bin" / "python",
    ]
    run([*pip, "install", "--no-deps", "--no-index", "--no-compile", wheel], folder)
    (packages,) = (place / "lib").glob("python*/site-packages")
    # A .pth file inside these folders is not read: what is installed there for editing is not seen.
    libraries = [path for path in sys.path if Path(path).name.endswith("-packages")]
    (packages / "dependencies.pth").write_text("\n".join(libraries))
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    for name in SHADOWS:
        (elsewhere / f"{name}.py").write_text(f"raise SystemExit('imported {name}.py of a user')\n")
    return Installed(
        wheel, source, packages, place / "bin" / "headstart", elsewhere, folder / "cache"
    )


def test_one_name_is_taken(installed: Installed) -> None:
    """`headstart` and what pip keeps about it: no `engine` or `kernels` in other people's way."""
    made = {path.name for path in installed.packages.iterdir()} - {"dependencies.pth"}
    assert "headstart" in made
    assert [name for name in made if not name.startswith("headstart")] == []
    with zipfile.ZipFile(installed.wheel) as wheel:
        tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"headstart"}


def test_every_file_of_the_project_is_in_it(installed: Installed) -> None:
    """Sources, kernels in C, manifest, adapters, recordings, the page; not the recipes."""
    wanted = {
        str(Path(folder, name).relative_to(installed.source))
        for folder, _, names in os.walk(installed.source / "headstart", followlinks=True)
        for name in names
        if not name.endswith(".md")
    }
    wanted = {name for name in wanted if not name.startswith("headstart/recipes/")}
    with zipfile.ZipFile(installed.wheel) as wheel:
        there = {name for name in wheel.namelist() if not name.endswith(".md")}
    assert {name for name in there if ".dist-info/" not in name} == wanted
    for name in ("gateway/audio/native.c", "kernels/pool.h", "web-demo/index.html"):
        assert f"headstart/{name}" in wanted


def test_the_source_archive_makes_the_same_wheel(installed: Installed, tmp_path: Path) -> None:
    """Links are files in it, and nothing is lost on the way."""
    archive = build("sdist", installed.source, tmp_path / "archive")
    with tarfile.open(archive) as packed:
        assert not any(member.issym() or member.islnk() for member in packed)
        packed.extractall(tmp_path, filter="data")
    again = build("wheel", tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "wheels")
    with zipfile.ZipFile(installed.wheel) as one, zipfile.ZipFile(again) as other:
        assert set(one.namelist()) == set(other.namelist())
        assert [n for n in one.namelist() if one.read(n) != other.read(n)] == []


@pytest.fixture
def server(installed: Installed) -> Iterator[str]:
    """The address of `headstart serve`, started in a folder with traps."""
    argv = [str(installed.command), "serve", "--engine", "fake", "--port", "0", "--announce"]
    with subprocess.Popen(
        argv,
        cwd=installed.elsewhere,
        env=os.environ | installed.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the server ended before it listened"
        yield json.loads(line)["url"]
        process.terminate()
        process.wait(TIMEOUT_S)


def test_it_serves_and_talks_from_any_folder(installed: Installed, server: str) -> None:
    """The page and all its files, a spoken turn; a folder's own `numpy.py` is nobody's business."""
    pages = installed.source / "web-demo"
    for path in filter(Path.is_file, pages.rglob("*")):
        name = path.relative_to(pages).as_posix()
        with urllib.request.urlopen(f"{server}/{name}", timeout=TIMEOUT_S) as answer:
            assert answer.read() == path.read_bytes(), name
    clip = installed.packages / "headstart" / "clips" / "capital.wav"
    said = installed.headstart("talk", clip, "--url", server, "--fast", "--json")
    result = json.loads(said.splitlines()[-1])
    assert result["status"] == "completed"
    assert result["answer"]


def test_a_talk_starts_a_server_of_its_own(installed: Installed) -> None:
    """From the same folder."""
    clip = installed.packages / "headstart" / "clips" / "capital.wav"
    said = installed.headstart("talk", clip, "--engine", "fake", "--fast", "--json")
    assert json.loads(said.splitlines()[-1])["answer"]


def test_the_other_commands_are_there(installed: Installed) -> None:
    """Own ones, and those of engine and benchmarks, which are entry points."""
    assert installed.headstart("--version").startswith("headstart ")
    told = installed.headstart("--help")
    for name in ("demo", "serve", "talk", "settings", "models", "bench"):
        assert f" {name} " in told
    assert "small" in installed.headstart("models", "list")
    assert "Usage: headstart bench" in installed.headstart("bench", "--help")


def test_what_is_made_lies_in_the_users_cache(installed: Installed) -> None:
    """Compiled libraries, from the sources in the wheel: the environment may be somebody else's."""
    before = files_of(installed.packages)
    code = (
        "from headstart.gateway.audio.native import native_audio\n"
        "from headstart.kernels import native\n"
        "assert native_audio() is not None\n"
        "print(native.library_path(native.find_compiler()))\n"
    )
    python = installed.command.with_name("python")
    said = run([python, "-P", "-c", code], installed.elsewhere, **installed.environment).stdout
    library = Path(said.strip())
    assert library.is_relative_to(installed.cache)
    assert library.name == native.library_path(native.find_compiler()).name  # hashed over sources
    assert list((installed.cache / "headstart" / "gateway").iterdir())
    assert files_of(installed.packages) == before


def files_of(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}
