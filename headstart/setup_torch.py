"""PyTorch's build for this machine: `python -m headstart.setup_torch CHOICE`, part of `make setup`.

PyPI has one build for Linux on x86-64, CUDA's: 3 GB with its libraries. PyTorch's own index has one
for CPUs, of 0.2 GB. `auto` takes that where there is no NVIDIA GPU, or keeps the build that is
installed; `cpu` and `cuda` change over. The build for CPUs has the pinned version with the suffix
`+cpu`, which satisfies the same pin. So pip, which installs the rest, leaves it alone.

uv fetches it: `--torch-backend` knows where that index is, and asks it for PyTorch's own packages
alone. Their dependencies come from PyPI, by pip. An index that cannot be used costs `auto` one
line; it goes on with PyPI.

Runs in the virtual environment, before anything else is installed in it: the standard library
alone.

"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from headstart import setup_check
from headstart.interrupts import EXIT_INTERRUPTED

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "constraints.txt"
PACKAGES = ("torch", "torchaudio")
PROBE_TIMEOUT_S = 20.0
"""For all of a probe's requests."""
PROBE = {"UV_HTTP_TIMEOUT": "5", "UV_HTTP_CONNECT_TIMEOUT": "5", "UV_HTTP_RETRIES": "1"}
DOWNLOAD = {"UV_HTTP_TIMEOUT": "60"}
OF_CUDA = ("nvidia-", "cuda-", "triton")
"""How the names of what PyTorch's CUDA build brings begin."""


class Unusable(Exception):
    """PyTorch's index does not have the build, or cannot be asked for it. Says why."""


def pins() -> dict[str, str]:
    """The versions of constraints.txt, by name."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK.read_text(), re.MULTILINE))


def installed(name: str = "torch") -> str | None:
    """The version of a package in this environment."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def build_here() -> str | None:
    """The build of PyTorch in this environment: "cpu", or "cuda" for PyPI's; None without one."""
    version = installed()
    return version and ("cpu" if version.endswith("+cpu") else "cuda")


def remark() -> str:
    """What to tell someone whose machine has a GPU that PyTorch's build here cannot use."""
    if build_here() != "cpu" or not setup_check.has_nvidia_gpu():
        return ""
    return (
        "this machine has an NVIDIA GPU, and PyTorch is built for CPUs here: `make setup "
        "TORCH=cuda` changes that, for --device cuda (docs/gpu.md)"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Install or change the build; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m headstart.setup_torch")
    parser.add_argument("choice", choices=("auto", "cpu", "cuda", "remark"))
    parser.add_argument("--index", default="", help="another index with builds for CPUs")
    parser.add_argument("packages", nargs="*", default=list(PACKAGES))
    asked = parser.parse_args(arguments)
    try:
        if asked.choice == "remark":
            if said := remark():
                _say(said)
            return 0
        return set_up(asked.choice, asked.index, asked.packages)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def set_up(choice: str, index: str, packages: Sequence[str]) -> int:
    """Put the build for CPUs in place, or make way for PyPI's, which pip installs next."""
    here = build_here()
    build = here if choice == "auto" and here is not None else setup_check.build_for(choice)
    if build == "cpu" and sys.platform.startswith("linux"):
        wanted = [f"{name}=={pins()[name]}+cpu" for name in packages]
        if all(installed(each.partition("==")[0]) == each.partition("==")[2] for each in wanted):
            return 0
        try:
            _install(wanted, index, replaces=here == "cuda")
            return 0
        except Unusable as error:
            if choice == "cpu":
                _say(f"PyTorch's build for CPUs could not be installed: {error}")
                return 1
            _say(f"PyTorch's build for CPUs is not to be had ({error}): going on with PyPI's")
    if here != "cuda":
        problem = setup_check.room_problem(sys.prefix, "cuda")
        if problem and os.environ.get(setup_check.SWITCH) != "off":
            _say(problem)  # before what is installed is touched
            return 1
        _say_size("cuda")
    if here == "cpu":
        _uninstall(PACKAGES)  # or pip would find the pin satisfied
    return 0


def _install(wanted: list[str], index: str, *, replaces: bool) -> None:
    """Raises `Unusable`, before anything is changed if the index can be seen not to do."""
    command = [sys.executable, "-m", "uv", "pip", "install", "--no-config", "--system-certs"]
    command += ["--python", sys.executable, "--no-deps"]
    command += ["--default-index", index] if index else ["--torch-backend", "cpu"]
    _get_uv()
    try:
        probe = subprocess.run(
            [*command, "--dry-run", *wanted],
            env=os.environ | PROBE,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unusable(f"no answer within {PROBE_TIMEOUT_S:.0f} s") from None
    if probe.returncode:
        raise Unusable(_reason(probe.stderr))
    if not replaces:
        _say_size("cpu")
    # /tmp may be a small part of memory; and from the environment's own disk files can be linked.
    place = os.environ.get("TMPDIR") or sys.prefix
    with tempfile.TemporaryDirectory(prefix="uv-", dir=place) as scratch:
        settings = DOWNLOAD | {"TMPDIR": scratch, "UV_CACHE_DIR": scratch}
        done = subprocess.run([*command, *wanted], env=os.environ | settings, check=False)
    if done.returncode:
        raise Unusable("uv says why above")
    if replaces:
        _uninstall([name for name in pins() if name.startswith(OF_CUDA) and installed(name)])


def _get_uv() -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "-c", str(LOCK), "uv"]
    done = subprocess.run(pip, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise Unusable(f"pip cannot install uv: {_reason(done.stderr)}")


def _uninstall(names: Sequence[str]) -> None:
    subprocess.run([sys.executable, "-m", "pip", "uninstall", "--quiet", "-y", *names], check=True)


def _reason(said: str) -> str:
    """The innermost cause of uv's errors, or what pip or uv says last, in one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    causes = [line.partition("cause:")[2].strip() for line in lines if line.startswith("cause:")]
    if causes:
        return causes[-1]
    errors = [n for n, line in enumerate(lines) if re.match(r"(?i)error|\u00d7", line)]
    text = " ".join(lines[errors[-1] :] if errors else lines[-1:])
    return text if len(text) <= 200 else text[:199] + "…"


def _say_size(build: str) -> None:
    wheels, folder = (
        f"{by_build[build] / 1e9:.1f} GB"
        for by_build in (setup_check.WHEELS_BYTES, setup_check.ENVIRONMENT_BYTES)
    )
    kind = "for CPUs" if build == "cpu" else "from PyPI"
    _say(f"about {wheels} to download, {folder} on disk, once (PyTorch's build {kind})")


def _say(sentence: str) -> None:
    print(f"headstart: {sentence}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
