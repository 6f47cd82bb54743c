"""Compiles each operation's C files once, loads them, and says which backend a call uses.

HEADSTART_KERNELS chooses, on first use: `native` (compile; an error if that fails), `reference`
(plain torch), or unset: native where a C compiler is found, else reference with one warning.
Libraries lie in $XDG_CACHE_HOME/headstart/kernels, named by a hash of sources, flags, compiler and
processor, and are put in place by an atomic rename: processes may race, none sees half a file.

torch is imported before a library is loaded: it maps its own libgomp.so.1, and -fopenmp resolves to
that one by its soname, so that kernels and torch share one pool of threads.

    KernelError
    +-- BackendError       HEADSTART_KERNELS or backend= names something else
    +-- CompilerError      no C compiler, or it failed
    +-- KernelInputError   a tensor of the wrong type, shape or device
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

logger = logging.getLogger("kernels")

ROOT = Path(__file__).resolve().parent
OPERATIONS = ("qlinear", "paged_attention", "rms_norm", "rope", "silu_mul")
COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-ffp-contract=off",  # a multiply and an add fuse only where the source says so
    "-fno-math-errno",
    "-Wno-psabi",  # wide vectors passed between functions of one file only
    "-shared",
    "-fPIC",
)
# `scalar` is the portable path of the same C, what other processors run; here it is for tests.
BACKENDS = ("native", "scalar", "reference")
SCALAR_FLAGS = ("-DHEADSTART_SCALAR",)
COMPILE_TIMEOUT_S = 300

Declare = Callable[[ctypes.CDLL], None]


class KernelError(Exception):
    """Base of everything raised here."""


class BackendError(KernelError, ValueError):
    """A backend name that does not exist."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        super().__init__(f"{source} is {name!r}: expected one of {', '.join(BACKENDS)}")


class CompilerError(KernelError, RuntimeError):
    """The native kernels could not be built; `detail` is what the compiler said."""

    def __init__(self, summary: str, detail: str = "") -> None:
        self.detail = detail
        super().__init__(f"{summary}\n{detail}".rstrip())


class KernelInputError(KernelError, ValueError):
    """A tensor that an operation cannot take."""


def cache_dir() -> Path:
    """Where compiled libraries lie (not created)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "headstart" / "kernels"


def find_compiler() -> str:
    """Path of the C compiler: $CC, else the first of COMPILERS; raises CompilerError."""
    for name in filter(None, (os.environ.get("CC"), *COMPILERS)):
        found = shutil.which(name)
        if found:
            return found
    raise CompilerError(
        "no C compiler found (looked for $CC, " + ", ".join(COMPILERS) + "): install gcc or clang, "
        "e.g. `apt install gcc libc6-dev` or `dnf install gcc`"
    )


def sources(name: str) -> list[Path]:
    """The C files of an operation, headers included, those shared by all too."""
    folder = ROOT / name
    return sorted([*folder.glob("*.c"), *folder.glob("*.h"), *ROOT.glob("*.h")])


@functools.cache
def _processor() -> str:
    """What -march=native depends on: a cache shared by machines must not mix them."""
    facts = [platform.machine(), platform.processor()]
    info = Path("/proc/cpuinfo")
    if info.exists():
        wanted = ("model name", "flags", "Features", "CPU part")
        lines = info.read_text(errors="replace").split("\n\n")[0].splitlines()
        facts += [line for line in lines if line.startswith(wanted)]
    return "\n".join(facts)


@functools.cache
def _compiler_version(compiler: str) -> str:
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return done.stdout


def library_path(name: str, compiler: str, *, scalar: bool = False) -> Path:
    """Where the library of an operation lies or will lie."""
    digest = hashlib.sha256()
    facts = [*FLAGS, *(SCALAR_FLAGS if scalar else ()), _compiler_version(compiler), _processor()]
    for fact in facts:
        digest.update(fact.encode() + b"\0")
    for source in sources(name):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return cache_dir() / f"{name}-{digest.hexdigest()[:20]}.so"


def build(name: str, *, scalar: bool = False) -> tuple[Path, bool]:
    """Compile an operation unless its library exists: (path, whether it was compiled now).

    Raises CompilerError.
    """
    compiler = find_compiler()
    path = library_path(name, compiler, scalar=scalar)
    if path.exists():
        return path, False
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [str(source) for source in sources(name) if source.suffix == ".c"]
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{name}-") as folder:
        made = Path(folder) / path.name
        base = [compiler, *FLAGS, *(SCALAR_FLAGS if scalar else ()), *files, "-lm", "-o", str(made)]
        # Apple's clang has no OpenMP: the kernels then run on the calling thread.
        tries = [_compile([*base, "-fopenmp"])]
        if tries[0]:
            tries.append(_compile(base))
        if tries[-1]:
            raise CompilerError(f"{compiler} could not compile kernels/{name}", tries[0])
        os.replace(made, path)
    return path, True


def _compile(command: list[str]) -> str:
    """Run the compiler; "" when it went well, else what it said."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=COMPILE_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"the compiler did not finish in {COMPILE_TIMEOUT_S} s"
    return "" if done.returncode == 0 else (done.stderr.strip() or f"exit {done.returncode}")


_lock = threading.Lock()
_libraries: dict[tuple[str, bool], ctypes.CDLL] = {}


def _load(name: str, declare: Declare, *, scalar: bool) -> ctypes.CDLL:
    """The library of an operation, compiled if need be; raises CompilerError."""
    key = (name, scalar)
    library = _libraries.get(key)
    if library is None:
        with _lock:
            if key not in _libraries:
                loaded = ctypes.CDLL(str(build(name, scalar=scalar)[0]))
                declare(loaded)
                _libraries[key] = loaded
            library = _libraries[key]
    return library


@functools.cache
def default_backend() -> str:
    """`native` or `reference`, from HEADSTART_KERNELS; decided once, on first use.

    Raises BackendError for another value.
    """
    name = os.environ.get("HEADSTART_KERNELS", "")
    if name and name not in BACKENDS:
        raise BackendError(name, "HEADSTART_KERNELS")
    if name:
        return name
    try:
        for operation in OPERATIONS:
            build(operation)
    except CompilerError as error:
        logger.warning("kernels fall back to plain torch, many times slower: %s", error)
        return "reference"
    return "native"


def library(name: str, declare: Declare, backend: str | None) -> ctypes.CDLL | None:
    """What a call of operation `name` uses: its library, or None for the torch reference.

    `declare` sets argument types on a library just loaded. Raises BackendError, CompilerError.
    """
    chosen = backend if backend is not None else default_backend()
    if chosen == "reference":
        return None
    if chosen not in BACKENDS:
        raise BackendError(chosen, "backend")
    return _load(name, declare, scalar=chosen == "scalar")


def threads() -> int:
    """Threads a kernel runs on: torch's setting."""
    return torch.get_num_threads()


def require(tensor: Tensor, name: str, shape: tuple[int | None, ...], *dtypes: torch.dtype) -> None:
    """Raise KernelInputError unless `tensor` is on the CPU, of this shape (None: any) and dtype."""
    fits = tensor.dim() == len(shape) and all(
        want is None or have == want for have, want in zip(tensor.shape, shape, strict=True)
    )
    if not fits or tensor.dtype not in dtypes or tensor.device.type != "cpu":
        wanted = ", ".join("*" if size is None else str(size) for size in shape)
        kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise KernelInputError(
            f"{name}: expected {kinds} [{wanted}] on the CPU, came "
            f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)} on {tensor.device}"
        )
