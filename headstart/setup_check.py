"""What `make setup` needs of a machine, checked before it downloads anything.

`python -I headstart/setup_check.py FOLDER [BUILD]` prints each problem with its remedy and returns
1, or prints nothing and returns 0. With `HEADSTART_SETUP_CHECK=off` it prints, but returns 0.
FOLDER is the virtual environment, made or not; BUILD is PyTorch's: auto, cpu or cuda. It runs on
the machine's own Python, which may be too old: syntax of 3.6, and the standard library alone.

"""

import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile

SWITCH = "HEADSTART_SETUP_CHECK"
OLDEST, NEWEST = (3, 11), (3, 14)
"""The Pythons for which all that constraints.txt pins has wheels."""
GLIBC = (2, 28)
"""The oldest that PyTorch's wheels run on."""
ENVIRONMENT_BYTES = {"cpu": 2_200_000_000, "cuda": 6_800_000_000}
"""The environment, by PyTorch's build."""
WHEELS_BYTES = {"cpu": 600_000_000, "cuda": 3_400_000_000}
"""What it comes from, which pip keeps while it installs: beside it, unless TMPDIR says
otherwise."""
DRIVER = ("dev/nvidiactl", "dev/nvidia0", "proc/driver/nvidia", "usr/lib/wsl/lib/nvidia-smi")
"""Where Linux shows that there is an NVIDIA driver, the last in a Windows subsystem."""
OTHER_WHEELS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONFIG_FILE")
"""With these pip may find other builds of PyTorch, whose size is not known."""
PROGRAM = """
#include <math.h>
#include <pthread.h>
#include <stdio.h>
double root(double x) { return sqrt(x); }
"""
COMPILE_TIMEOUT_S = 60


def has_nvidia_gpu(root: str = "/") -> bool:
    """Whether there is an NVIDIA GPU with its driver; without that PyTorch could not use one."""
    return shutil.which("nvidia-smi") is not None or any(
        os.path.exists(os.path.join(root, place)) for place in DRIVER
    )


def build_for(choice: str) -> str:
    """PyTorch's build of a choice: "cpu" or "cuda", as PyPI's is called here on all systems. "auto"
    is "cpu" where PyPI's is CUDA's and of no use: on Linux on x86-64 without an NVIDIA GPU."""
    if choice != "auto":
        return choice
    has_cuda = sys.platform.startswith("linux") and platform.machine() == "x86_64"
    return "cpu" if has_cuda and not has_nvidia_gpu() else "cuda"


def problems(folder: str, build: str) -> "list[str]":
    """One or two sentences for each thing that set-up would fail at, with that build of PyTorch."""
    made = os.path.realpath(sys.prefix) == os.path.realpath(folder)  # it runs on that one's Python
    version = (sys.version_info[0], sys.version_info[1])
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    python = python_problem(version, free_threaded)
    if python and made:
        python += f" (first: rm -r {folder}, which was made with this one)"
    found = [python, system_problem(glibc(), sys.maxsize > 2**32)]
    found += ["" if made else venv_problem(), compiler_problem()]
    found.append(folder_problem(folder) or room_problem(folder, build))
    return [problem for problem in found if problem]


def python_problem(version: "tuple[int, int]", free_threaded: bool = False) -> str:
    """A Python without wheels, and which other one of this machine would do."""
    if OLDEST <= version <= NEWEST and not free_threaded:
        return ""
    kind = " (free-threaded)" if free_threaded else ""
    said = f"headstart needs Python {dotted(OLDEST)} to {dotted(NEWEST)}; this is {dotted(version)}"
    names = [f"python3.{minor}" for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]
    other = next(filter(shutil.which, names), None)
    if other is not None:
        return f"{said}{kind}. This machine has another: make demo PYTHON={other}"
    return f"{said}{kind}. Install one and name it: make demo PYTHON=python3.12"


def dotted(version: "tuple[int, ...]") -> str:
    """A version as people write it."""
    return ".".join(map(str, version))


def glibc() -> "tuple[int, ...] | None":
    """The version of the C library on Linux; None if it is not glibc, () on another system."""
    if not sys.platform.startswith("linux"):
        return ()
    try:
        said = os.confstr("CS_GNU_LIBC_VERSION") or ""
        return tuple(int(part) for part in said.split()[-1].split(".")[:2])
    except (AttributeError, IndexError, OSError, ValueError):
        return None


def system_problem(libc: "tuple[int, ...] | None", wide: bool) -> str:
    """A system that PyTorch has no wheels for. `wide`: whether Python is one of 64 bits."""
    if not wide:
        return "headstart needs a 64-bit Python: PyTorch has no wheels for others"
    if libc is None:
        return "headstart needs a Linux with glibc: PyTorch has no wheels for musl (Alpine)"
    if libc and libc < GLIBC:
        wanted = f"headstart needs glibc {dotted(GLIBC)} or newer, this is {dotted(libc)}"
        return f"{wanted}: use a newer distribution"
    return ""


def venv_problem() -> str:
    """A Python without the modules that make virtual environments, as Debian packages it."""
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    package = f"python{dotted(sys.version_info[:2])}-venv"
    return f"this Python has no {missing[-1]} (Debian and Ubuntu: apt install {package})"


def compiler_problem() -> str:
    """No C compiler, or one that lacks the C library's headers or its linker. Whoever has chosen
    the kernels of plain torch needs none."""
    if os.environ.get("HEADSTART_KERNELS") == "reference":
        return ""
    names = filter(None, (os.environ.get("CC"), "cc", "gcc", "clang"))
    compiler = next(filter(None, map(shutil.which, names)), None)
    remedy = "(Debian and Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc)"
    if compiler is None:
        return f"headstart needs a C compiler {remedy}"
    with tempfile.TemporaryDirectory() as scratch:
        source = os.path.join(scratch, "try.c")
        with open(source, "w") as file:
            file.write(PROGRAM)
        command = [compiler, "-shared", "-fPIC", "-pthread", source, "-lm", "-o", source + ".so"]
        try:
            subprocess.run(
                command,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=COMPILE_TIMEOUT_S,
            )
        except subprocess.CalledProcessError as error:
            lines = error.stderr.decode("utf-8", "replace").strip().splitlines()
            wrong = [line for line in lines if "error:" in line] or lines or ["it said nothing"]
            return f"{compiler} compiles nothing here {remedy}: {wrong[0].strip()}"
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{compiler} compiles nothing here {remedy}: {error}"
    return ""


def folder_problem(folder: str) -> str:
    """A folder that cannot be written to."""
    parent = os.path.dirname(os.path.abspath(folder))
    if os.pathsep in parent:
        return f"Python makes no virtual environment in a path with a colon: rename {parent}"
    for place in (folder, os.path.join(folder, "tmp")):
        if os.path.isdir(place) and not os.access(place, os.W_OK) and os.access(parent, os.W_OK):
            remedy = "sudo rm -r " + shlex.quote(folder)
            return f"{place} is not yours to write to, as after `sudo make`: {remedy}"
    if not os.access(folder if os.path.isdir(folder) else parent, os.W_OK):
        return f"{parent} cannot be written to: clone headstart into a folder of yours"
    return ""


def room_problem(folder: str, build: str) -> str:
    """Too little room for what is still to come, with that build of PyTorch."""
    if os.path.exists(os.path.join(folder, ".installed")):
        return ""  # complete once: little is to come
    if any(os.environ.get(name) for name in OTHER_WHEELS):
        return ""
    parent = os.path.dirname(os.path.abspath(folder))
    beside_bytes = 0 if os.environ.get("TMPDIR") else WHEELS_BYTES[build]
    wanted_bytes = ENVIRONMENT_BYTES[build] + beside_bytes - size_bytes(folder)
    try:
        # The folder may be a mount of its own, as a container's volume.
        total_bytes, _, free_bytes = shutil.disk_usage(folder if os.path.isdir(folder) else parent)
    except OSError:
        return ""
    if total_bytes and free_bytes < wanted_bytes:  # some file systems know neither, and say 0
        said = f"{parent} has {free_bytes / 1e9:.1f} GB free, set-up needs {wanted_bytes / 1e9:.1f}"
        return f"{said}: free some, or clone to another disk"
    return ""


def size_bytes(folder: str) -> int:
    """What the files of a folder take; 0 if there is none."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:
                continue  # it went meanwhile
    return total


def main(folder: str, choice: str = "auto") -> int:
    """Print what is missing; the exit code."""
    if choice not in ("auto", "cpu", "cuda"):
        sys.stderr.write(f"TORCH: expected auto, cpu or cuda, got {choice}\n")
        return 1
    found = problems(folder, build_for(choice))
    for problem in found:
        sys.stderr.write(problem + "\n")
    if not found or os.environ.get(SWITCH) == "off":
        return 0
    sys.stderr.write(f"If that is wrong: {SWITCH}=off goes on all the same\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
