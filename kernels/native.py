"""Compiles and loads the C kernels, and selects the backend of a call.

HEADSTART_KERNELS selects it, on first use: `native` (compile for all that the processor has; an
error if that fails), a level of levels.py by name (less than the processor has, down to `scalar`,
without vector instructions: slower, the same bits), `reference` (plain torch: other bits), or
unset: native if it can be compiled and loaded, else reference with one warning.

All C files make one library, so that all kernels share one thread pool (pool.c). It is stored in
$XDG_CACHE_HOME/headstart/kernels, named by a hash of sources, flags, compiler and processor, and
put in place by an atomic rename, so that concurrent processes never see half a file.

Errors are those of `kernels.errors`.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from headstart.kernels import levels
from headstart.kernels.errors import (
    BackendError,
    CompilerError,
    KernelInputError,
    LevelError,
)

logger = logging.getLogger("headstart.kernels")

ROOT = Path(__file__).resolve().parent
COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-ffp-contract=off",  # a multiply and an add fuse only where the source says so
    "-fno-math-errno",
    "-Wno-psabi",  # wide vectors passed between functions of one file only
    "-fPIC",
    "-pthread",
)
BACKENDS = ("native", *levels.NAMES, "reference")
COMPILE_TIMEOUT_S = 300

Declare = Callable[[ctypes.CDLL], None]


def cache_dir() -> Path:
    """Folder of compiled libraries (not created)."""
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


def sources() -> list[Path]:
    """All C files and headers, of every operation and shared."""
    return sorted(path for path in ROOT.rglob("*.[ch]"))


@functools.cache
def _processor() -> str:
    """What -march=native depends on, so that machines can share a cache."""
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


def library_path(compiler: str, level: str = "native") -> Path:
    """Where the library is or will be stored."""
    digest = hashlib.sha256()
    facts = [*FLAGS, *levels.flags_of(level, compiler), _compiler_version(compiler), _processor()]
    for fact in facts:
        digest.update(fact.encode() + b"\0")
    for source in sources():
        digest.update(str(source.relative_to(ROOT)).encode() + b"\0" + source.read_bytes())
    return cache_dir() / f"{level}-{digest.hexdigest()[:20]}.so"


def build(level: str = "native") -> tuple[Path, bool]:
    """Compile the library unless it exists: (path, whether it was compiled now).

    `level`: `native`, or a name of levels.py. Raises CompilerError, LevelError.
    """
    compiler = find_compiler()
    if level != "native" and level not in levels.here(compiler):
        raise LevelError(level, compiler, levels.here(compiler))
    path = library_path(compiler, level)
    if path.exists():
        return path, False
    flags = [*FLAGS, *levels.flags_of(level, compiler)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".building-") as folder:
            made = _compile_all(compiler, flags, Path(folder))
            os.replace(made, path)
    except OSError as error:
        raise CompilerError(f"cannot write kernels to {path.parent}", str(error)) from error
    return path, True


def _compile_all(compiler: str, flags: list[str], folder: Path) -> Path:
    """Compile every C file, in parallel, and link them: the library's path in `folder`."""
    files = [source for source in sources() if source.suffix == ".c"]
    objects = [folder / f"{i}.o" for i in range(len(files))]
    commands = [
        [compiler, *flags, "-c", str(source), "-o", str(made)]
        for source, made in zip(files, objects, strict=True)
    ]
    made = folder / "library.so"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = list(pool.map(_compile, commands))
    failures.append(
        _compile([compiler, "-shared", "-pthread", *map(str, objects), "-lm", "-o", str(made)])
        if not any(failures)
        else ""
    )
    for failure in filter(None, failures):
        raise CompilerError(f"{compiler} could not compile the kernels", failure)
    return made


def _compile(command: list[str]) -> str:
    """Run the compiler; "" if it succeeded, else its message."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=COMPILE_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"the compiler did not finish in {COMPILE_TIMEOUT_S} s"
    return "" if done.returncode == 0 else (done.stderr.strip() or f"exit {done.returncode}")


_lock = threading.Lock()
_libraries: dict[tuple[str, str], ctypes.CDLL] = {}


def _open(level: str = "native") -> ctypes.CDLL:
    """The library, compiled if necessary. Raises LevelError, and CompilerError, also if the system
    refuses to load it, for example from a file system mounted without `exec`."""
    path, _ = build(level)
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompilerError(f"cannot load the kernels from {path.parent}", str(error)) from error


def _load(operation: str, declare: Declare, level: str) -> ctypes.CDLL:
    """The library, with the operation's functions declared; raises CompilerError, LevelError."""
    key = (operation, level)
    with _lock:
        if key not in _libraries:
            loaded = _open(level)
            declare(loaded)
            _libraries[key] = loaded
        return _libraries[key]


@functools.cache
def default_backend() -> str:
    """One of BACKENDS, from HEADSTART_KERNELS; decided once, on first use.

    Raises BackendError for another value.
    """
    name = os.environ.get("HEADSTART_KERNELS", "")
    if name and name not in BACKENDS:
        raise BackendError(name, "HEADSTART_KERNELS", BACKENDS)
    if name:
        return name
    try:
        _open()
    except CompilerError as error:
        logger.warning("kernels fall back to plain torch, many times slower: %s", error)
        return "reference"
    return "native"


def library(operation: str, declare: Declare, backend: str | None) -> ctypes.CDLL | None:
    """The library for a call of `operation`, or None for the torch reference.

    `declare` sets argument types, once. Raises BackendError, CompilerError, LevelError.
    """
    chosen = backend if backend is not None else default_backend()
    if chosen == "reference":
        return None
    if chosen not in BACKENDS:
        raise BackendError(chosen, "backend", BACKENDS)
    # Looked up without the lock: a dict read is atomic, and this runs some 200 times per token.
    return _libraries.get((operation, chosen)) or _load(operation, declare, chosen)


def level() -> str:
    """The level that the default backend runs, a name of levels.py; or `reference`."""
    chosen = default_backend()
    if chosen != "native":
        return chosen
    return levels.here(find_compiler())[0]


_chosen_threads: int | None = None


def set_threads(count: int | None) -> None:
    """Set the kernels' thread count, independent of torch's; None: torch's count again.

    Two thread pools on the same cores block each other, because torch's workers spin after each
    parallel region. A caller that leaves the work to the kernels should give torch one thread.
    """
    global _chosen_threads
    assert count is None or count > 0
    _chosen_threads = count


_here = threading.local()


def limit_threads_here(count: int) -> None:
    """Let kernels that this thread calls run on at most so many threads. With 1 they leave the pool
    to whoever calls from other threads."""
    assert count > 0
    _here.most = count


def threads() -> int:
    """Number of threads a kernel runs on."""
    chosen = _chosen_threads or torch.get_num_threads()
    return min(chosen, getattr(_here, "most", chosen))


def require(tensor: Tensor, name: str, shape: tuple[int | None, ...], *dtypes: torch.dtype) -> None:
    """Raise KernelInputError unless `tensor` is on the CPU, of this shape (None: any) and dtype."""
    have = tensor.shape
    if tensor.dtype in dtypes and tensor.is_cpu and len(have) == len(shape):
        for size, wanted in zip(have, shape, strict=True):
            if wanted is not None and size != wanted:
                break
        else:
            return
    sizes = ", ".join("*" if size is None else str(size) for size in shape)
    kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    raise KernelInputError(
        f"{name}: expected {kinds} [{sizes}] on the CPU, got "
        f"{str(tensor.dtype).removeprefix('torch.')} {list(have)} on {tensor.device}"
    )
