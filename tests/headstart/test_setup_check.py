"""What set-up needs is checked before it downloads: each lack, and what the user is told to do."""

from __future__ import annotations

import ast
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import namedtuple
from pathlib import Path

import pytest

from headstart import setup_check

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "headstart" / "setup_check.py"
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, empty at first."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    return folder


def script(path: Path, *lines: str) -> None:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def no_other_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in setup_check.OTHER_WHEELS:
        monkeypatch.delenv(name, raising=False)


def test_it_runs_on_a_python_that_is_too_old() -> None:
    """Its syntax is that of 3.6, and nothing but the standard library is imported."""
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imported <= sys.stdlib_module_names


def test_a_machine_that_has_everything_is_told_nothing(tmp_path: Path) -> None:
    """This one, which runs the tests: nothing is printed, also where Python ignores this folder."""
    done = subprocess.run(
        [sys.executable, "-I", str(SCRIPT), str(tmp_path / ".venv")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    full = "GB free" in done.stderr  # then a line of that, and one of how to go on all the same
    assert done.stderr.count("\n") == (2 if full else 0)
    assert done.returncode == (1 if done.stderr else 0)


def test_all_that_is_missing_is_named_at_once(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each, on stderr, and exit code 1."""
    assert setup_check.main(str(programs / "gone" / ".venv")) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.split(" (")[0] for line in said.err.splitlines()] == [
        "headstart needs a C compiler",
        f"{programs / 'gone'} cannot be written to: clone headstart into a folder of yours",
        "If that is wrong: HEADSTART_SETUP_CHECK=off goes on all the same",
    ]


@pytest.mark.parametrize("place", ["", "tmp"])
@pytest.mark.parametrize("clone", ["clone", "a clone"])
def test_an_environment_of_roots_is_to_be_removed(
    place: str, clone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `sudo make` leaves it: the remedy removes that, and not the clone, or part of its path."""
    folder = tmp_path / clone / ".venv"
    (folder / "tmp").mkdir(parents=True)
    theirs = str(folder / place) if place else str(folder)
    monkeypatch.setattr(os, "access", lambda path, _: path != theirs)
    said = setup_check.folder_problem(str(folder))
    remedy = f"sudo rm -r {shlex.quote(str(folder))}"
    assert said == f"{theirs} is not yours to write to, as after `sudo make`: {remedy}"


def test_the_user_may_know_better(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the check off its findings are still printed."""
    monkeypatch.setenv("HEADSTART_SETUP_CHECK", "off")
    assert setup_check.main(str(programs / "gone" / ".venv")) == 0
    assert "headstart needs a C compiler" in capsys.readouterr().err


def test_an_environment_of_a_python_without_wheels_has_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another PYTHON alone would change nothing: make goes on with the one in the environment."""
    folder = tmp_path / ".venv"
    monkeypatch.setattr(setup_check, "NEWEST", (3, 10))
    monkeypatch.setattr(setup_check, "OLDEST", (3, 10))
    monkeypatch.setattr(sys, "prefix", str(folder))
    assert f"(first: rm -r {folder}," in setup_check.problems(str(folder), "cpu")[0]
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert "rm -r" not in setup_check.problems(str(folder), "cpu")[0]


def test_the_kernels_of_plain_torch_need_no_compiler(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/troubleshooting.md says so."""
    assert setup_check.compiler_problem() != ""
    monkeypatch.setenv("HEADSTART_KERNELS", "reference")
    assert setup_check.compiler_problem() == ""


@pytest.mark.parametrize("version", [(3, 9), (3, 10), (3, 15), (4, 0)])
def test_a_python_without_wheels_is_refused(programs: Path, version: tuple[int, int]) -> None:
    """Before half an hour of compiling; the newest other one that would do is named."""
    said = setup_check.python_problem(version)
    assert said.startswith(
        f"headstart needs Python 3.11 to 3.14; this is {version[0]}.{version[1]}. Install one"
    )
    for name in ("python3.10", "python3.12", "python3.13", "python3.15"):
        script(programs / name)
    assert setup_check.python_problem(version).endswith("make demo PYTHON=python3.13")


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13), (3, 14)])
def test_a_python_with_wheels_passes(version: tuple[int, int]) -> None:
    """But not its free-threaded build, for which there are none."""
    assert setup_check.python_problem(version) == ""
    assert "(free-threaded)" in setup_check.python_problem(version, free_threaded=True)


def test_the_oldest_is_that_of_the_package() -> None:
    """And the Makefile, which speaks where there is no Python at all, names the same range."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest, newest = map(setup_check.dotted, (setup_check.OLDEST, setup_check.NEWEST))
    assert project["requires-python"] == f">={oldest}"
    assert f"headstart needs Python {oldest} to {newest}" in (ROOT / "Makefile").read_text()
    assert f"Python {oldest} to {newest}" in (ROOT / "README.md").read_text()


def test_a_system_without_wheels_is_refused() -> None:
    """Another C library, an old one, 32 bits; other systems than Linux are let through."""
    assert setup_check.system_problem((2, 28), wide=True) == ""
    assert setup_check.system_problem((), wide=True) == ""
    assert "this is 2.17" in setup_check.system_problem((2, 17), wide=True)
    assert "musl" in setup_check.system_problem(None, wide=True)
    assert "64-bit" in setup_check.system_problem((2, 28), wide=False)


def test_a_python_without_ensurepip_is_told_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Debian and Ubuntu without python3-venv."""
    assert setup_check.venv_problem() == ""
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "ensurepip" else name
    )
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    assert setup_check.venv_problem() == (
        f"this Python has no ensurepip (Debian and Ubuntu: apt install {package})"
    )


def test_a_compiler_without_headers_is_found_out(programs: Path) -> None:
    """As `gcc` without libc6-dev: its own error is shown."""
    script(programs / "cc", 'echo "try.c:2: fatal error: math.h: No such file" >&2', "exit 1")
    said = setup_check.compiler_problem()
    assert said.startswith(f"{programs / 'cc'} compiles nothing here (Debian and Ubuntu: apt")
    assert said.endswith("fatal error: math.h: No such file")


def test_a_compiler_that_cannot_be_started_is_found_out(programs: Path) -> None:
    """As one for another processor."""
    (programs / "cc").write_bytes(b"\x7fELF")
    (programs / "cc").chmod(0o755)
    assert "compiles nothing here" in setup_check.compiler_problem()


@pytest.mark.parametrize("build", ["cpu", "cuda"])
def test_a_full_disk_is_told_before_the_download(
    tmp_path: Path, build: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment has already counts."""
    needed = setup_check.ENVIRONMENT_BYTES[build] + setup_check.WHEELS_BYTES[build]
    no_other_wheels(monkeypatch)
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(needed, 1000, needed - 1000))
    assert setup_check.room_problem(str(tmp_path / ".venv"), build).startswith(
        f"{tmp_path} has {needed / 1e9:.1f} GB free, set-up needs {needed / 1e9:.1f}: free some"
    )
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "file").write_bytes(bytes(1000))
    assert setup_check.room_problem(str(tmp_path / ".venv"), build) == ""


@pytest.mark.parametrize("name", setup_check.OTHER_WHEELS)
def test_room_is_not_judged_where_pip_may_find_other_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """PyTorch for the CPU takes much less."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10, 9, 1))
    monkeypatch.setenv(name, "https://wheels.example/cpu")
    assert setup_check.room_problem(str(tmp_path / ".venv"), "cuda") == ""


def test_a_file_system_that_does_not_tell_its_room_is_let_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some on a network answer with zeros, or not at all."""
    no_other_wheels(monkeypatch)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 0))
    assert setup_check.room_problem(str(tmp_path / ".venv"), "cuda") == ""

    def fail(_: str) -> Usage:
        raise OSError("function not implemented")

    monkeypatch.setattr(shutil, "disk_usage", fail)
    assert setup_check.room_problem(str(tmp_path / ".venv"), "cuda") == ""


def test_room_is_that_of_the_environments_own_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have a volume mounted there."""
    no_other_wheels(monkeypatch)
    folder = tmp_path / ".venv"
    folder.mkdir()
    large, full = Usage(1 << 40, 0, 1 << 40), Usage(1000, 1000, 0)
    monkeypatch.setattr(
        shutil, "disk_usage", lambda where: large if str(where) == str(folder) else full
    )
    assert setup_check.room_problem(str(folder), "cuda") == ""


def test_a_path_with_a_colon_is_refused(tmp_path: Path) -> None:
    """`python -m venv` would refuse it later."""
    assert "colon" in setup_check.folder_problem(str(tmp_path / "a:b" / ".venv"))


# --- PyTorch's build -----------------------------------------------------------------------------


@pytest.mark.parametrize("place", setup_check.DRIVER)
def test_a_driver_of_nvidias_is_found_by_what_it_makes(
    tmp_path: Path, programs: Path, place: str
) -> None:
    """Its devices and files, or its program; a card without a driver is of no use to PyTorch."""
    assert not setup_check.has_nvidia_gpu(str(tmp_path))
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).touch()
    assert setup_check.has_nvidia_gpu(str(tmp_path))
    script(programs / "nvidia-smi")
    assert setup_check.has_nvidia_gpu(str(tmp_path / "elsewhere"))


@pytest.mark.parametrize(
    ("system", "machine", "gpu", "build"),
    [
        ("linux", "x86_64", False, "cpu"),
        ("linux", "x86_64", True, "cuda"),
        ("linux", "aarch64", False, "cuda"),
        ("darwin", "x86_64", False, "cuda"),
    ],
)
def test_the_build_for_cpus_is_for_machines_where_cuda_is_of_no_use(
    system: str, machine: str, gpu: bool, build: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where PyPI's would have it. Whoever asks for one gets it."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(setup_check, "has_nvidia_gpu", lambda: gpu)
    assert setup_check.build_for("auto") == build
    assert [setup_check.build_for(choice) for choice in ("cpu", "cuda")] == ["cpu", "cuda"]


def test_another_word_for_the_build_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """`make setup TORCH=gpu`."""
    assert setup_check.main(".venv", "gpu") == 1
    assert capsys.readouterr().err == "TORCH: expected auto, cpu or cuda, got gpu\n"


# --- the Makefile --------------------------------------------------------------------------------


def make_setup(folder: Path, python: str, *more: str) -> subprocess.CompletedProcess[str]:
    """`make setup` in a folder with the files that it reads and none of ours beside the check."""
    (folder / "headstart").mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "headstart/setup_check.py"):
        shutil.copy(ROOT / name, folder / name)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    return subprocess.run(
        ["make", "setup", f"PYTHON={python}", *more],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_make_says_what_to_install_where_there_is_no_python(tmp_path: Path) -> None:
    """In one line; nothing is made."""
    done = make_setup(tmp_path, "python3.99")
    assert done.returncode == 2
    assert "there is no python3.99 (Debian and Ubuntu: apt install python3" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_make_checks_the_python_that_it_will_use(tmp_path: Path) -> None:
    """An environment without pip, as uv makes them, is made again: by PYTHON, which is checked."""
    place = tmp_path / "clone"
    (place / ".venv" / "bin").mkdir(parents=True)
    script(place / ".venv" / "bin" / "python", 'case "$*" in *pip*) exit 1;; esac')
    python = tmp_path / "python"
    script(python, 'echo "checked: $2" >&2', "exit 1")
    done = make_setup(place, str(python))
    assert done.returncode == 2
    assert "checked: headstart/setup_check.py" in done.stderr


@pytest.mark.parametrize(
    ("name", "flags"), [("python", " -B -X utf8"), ("a python", ""), ("python", "")]
)
def test_python_may_be_a_path_with_spaces_or_have_flags(
    tmp_path: Path, name: str, flags: str
) -> None:
    """It is run with its flags, for the check and for the environment."""
    place, python = tmp_path / "clone", tmp_path / name
    place.mkdir()
    script(python, 'echo "run: $*" >&2', 'case "$*" in *venv*--clear*) exit 1;; esac')
    done = make_setup(place, f"{python}{flags}")
    runs = [line for line in done.stderr.splitlines() if line.startswith("run: ")]
    wanted = ("-I headstart/setup_check.py .venv auto", "-m venv --clear .venv")
    assert runs == [f"run:{flags} {arguments}" for arguments in wanted]


def test_make_says_which_command_with_flags_is_missing(tmp_path: Path) -> None:
    """As it was given."""
    done = make_setup(tmp_path, "python3.99 -B")
    assert done.returncode == 2
    assert "there is no python3.99 -B (Debian" in done.stderr


@pytest.mark.parametrize("folder", ["plain", "a path with spaces"])
def test_make_says_what_to_do_when_pip_fails(tmp_path: Path, folder: str) -> None:
    """pip's temporary files lie beside the environment, and set-up is not taken for done."""
    python = tmp_path / "python"
    script(
        python,
        'case "$2" in venv) ;; *) exit 0;; esac',  # the check passes
        "mkdir -p .venv/bin",
        'cp "$0" .venv/bin/python',
        "printf '#!/bin/sh\\necho \"pip: $TMPDIR\"\\nexit 1\\n' > .venv/bin/python",
    )
    where = tmp_path / folder
    where.mkdir()
    done = make_setup(where, str(python))
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1] == f"pip: {where}/.venv/tmp"
    assert "headstart: set-up stopped; pip says why above." in done.stderr
    assert not (where / ".venv" / ".installed").exists()
