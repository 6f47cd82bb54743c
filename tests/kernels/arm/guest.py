"""C code compiled for 64-bit Arm, in a process of qemu's, called as if it were loaded here.

`ArmLibrary` stands in for a `ctypes.CDLL`: its functions take the same arguments. serve.c fetches
what pointers point to from this process, and writes back what a call has written.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.gateway.audio import native as audio
from headstart.kernels import levels, native
from tests.debian_tools import ARM_COMPILER, ARM_EMULATOR

SERVE = Path(__file__).with_name("serve.c")
# Far from where this process's memory lies: addresses are the same in both.
LOAD_AT = 0x60_0000_0000
INTEGERS, FLOATS = 16, 8
REQUEST = struct.Struct(f"<Qq{INTEGERS}q{FLOATS}dq")
REPLY = struct.Struct("<qdq")
STARTS = 5  # where both processes' memory overlaps, which is chance
COMPILE_TIMEOUT_S = 600


class ArmError(RuntimeError):
    """The code cannot be built for Arm, or its process has ended."""


SCALAR = "scalar-on-arm"
"""The portable path, compiled for Arm."""


@dataclass(frozen=True)
class Processor:
    """One that qemu has: `name` for its -cpu, and the levels that are tested on it, its highest
    first."""

    name: str
    levels: tuple[str, ...]


PROCESSORS = (
    Processor("cortex-a53", ("neon", SCALAR)),
    Processor("cortex-a76", ("dotprod",)),
    Processor("max", ("i8mm",)),
)


def flags_of(level: str) -> tuple[str, ...]:
    """What compiles it."""
    if level == SCALAR:
        return ("-march=armv8-a", "-DHEADSTART_SCALAR")
    return next(known.flags for known in levels.ARM_LEVELS if known.name == level)


def build(level: str) -> Path:
    """A program with all kernels and the gateway's C file, unless it exists. Raises ArmError."""
    compiler = ARM_COMPILER.ensure()[0]
    sources = [source for source in native.sources() if source.suffix == ".c"]
    plans = [(source, (*native.FLAGS, *flags_of(level))) for source in sources]
    plans.append((audio.SOURCE, ("-std=gnu11", "-O3", *audio.EXACT)))
    plans.append((SERVE, ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")))
    digest = hashlib.sha256(str(plans).encode())
    for source in (*native.sources(), audio.SOURCE, SERVE, Path(__file__)):
        digest.update(source.read_bytes())
    path = native.cache_dir().parent / "arm" / f"{level}-{digest.hexdigest()[:20]}"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".building-") as folder:
        objects = [Path(folder) / f"{i}.o" for i in range(len(plans))]
        commands = [
            [str(compiler), *flags, "-c", str(source), "-o", str(made)]
            for (source, flags), made in zip(plans, objects, strict=True)
        ]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_compile, commands))
        made = Path(folder) / "program"
        link = ["-static", "-no-pie", "-pthread", "-Wl,--wrap=memset"]
        link += [f"-Wl,-Ttext-segment={LOAD_AT:#x}"]
        _compile([str(compiler), *link, *map(str, objects), "-lm", "-o", str(made)])
        made.replace(path)
    return path


def _compile(command: list[str]) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=COMPILE_TIMEOUT_S,
        env=ARM_COMPILER.environment,
    )
    if done.returncode != 0:
        raise ArmError(f"{' '.join(command)}\n{done.stderr}")


def _functions(program: Path) -> dict[str, int]:
    """Addresses of what can be called."""
    listed = subprocess.run(
        [str(ARM_COMPILER.ensure()[1]), str(program)],
        capture_output=True,
        text=True,
        check=True,
        env=ARM_COMPILER.environment,
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    wanted = re.compile(r"hs_|headstart_|serve_")
    return {row[2]: int(row[0], 16) for row in rows if len(row) == 3 and wanted.match(row[2])}


class ArmFunction:
    """Like a function of a `ctypes.CDLL`: `argtypes` and `restype` may be set."""

    def __init__(self, library: ArmLibrary, name: str, address: int) -> None:
        self.argtypes: Sequence[Any] = ()
        self.restype: Any = ctypes.c_int
        self._library, self._name, self._address = library, name, address

    def __call__(self, *arguments: Any) -> Any:
        integers, floats, single = [], [], 0
        kept = []  # what is pointed to lives until the call is over
        for i, given in enumerate(arguments):
            kind = self.argtypes[i] if i < len(self.argtypes) else None
            value = getattr(given, "value", given)
            if isinstance(value, bytes):
                kept.append(value)
                integers.append(ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p).value or 0)
            elif isinstance(value, ctypes.Array):
                integers.append(ctypes.addressof(value))
            elif isinstance(value, float) or kind in (ctypes.c_float, ctypes.c_double):
                floats.append(float(value))
                single = int(kind is ctypes.c_float)
            else:
                integers.append(int(value or 0))
        return self._library.call(self._address, self.restype, integers, floats, single)


class ArmLibrary:
    """The program's functions by name, in a process of its own on `processor`."""

    def __init__(self, level: str, processor: Processor) -> None:
        assert level in processor.levels
        self._name = str(build(level))  # like a CDLL's
        self._lock = threading.Lock()
        self._functions = {
            name: ArmFunction(self, name, address)
            for name, address in _functions(Path(self._name)).items()
        }
        self._memory = os.open("/proc/self/mem", os.O_RDWR)
        self._process = self._start(processor)

    def _start(self, processor: Processor) -> subprocess.Popen[bytes]:
        command = [str(ARM_EMULATOR.ensure()[0]), "-cpu", processor.name, self._name]
        for _ in range(STARTS):
            process = subprocess.Popen(
                [*command, str(self._memory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[self._memory],
                env=ARM_EMULATOR.environment,
            )
            self._process = process
            self.call(self._functions["serve_auxval"]._address, ctypes.c_int, [0], [], 0)
            if not _overlaps(_ranges("self"), _ranges(str(process.pid))):
                return process
            self.close()
        raise ArmError(f"{command[0]} lies where this process's memory is, {STARTS} times")

    def __getattr__(self, name: str) -> ArmFunction:
        try:
            return self.__dict__["_functions"][name]  # type: ignore[no-any-return]
        except KeyError:
            raise AttributeError(name) from None

    def call(
        self, address: int, restype: Any, integers: list[int], floats: list[float], single: int
    ) -> Any:
        """What the function returns."""
        text, real = restype is ctypes.c_char_p, restype is ctypes.c_double
        padded = [*integers, *[0] * (INTEGERS - len(integers))]
        doubles = [*floats, *[0.0] * (FLOATS - len(floats))]
        signed = [value - (1 << 64) if value >= 1 << 63 else value for value in padded]
        returns = ord("s" if text else "d" if real else "i")
        with self._lock:
            stdin, stdout = self._process.stdin, self._process.stdout
            assert stdin is not None
            assert stdout is not None
            try:
                stdin.write(REQUEST.pack(address, returns, *signed, *doubles, single))
                stdin.flush()
            except BrokenPipeError:
                raise self._ended() from None
            reply = stdout.read(REPLY.size)
            if len(reply) != REPLY.size:
                raise self._ended()
            integer, found, length = REPLY.unpack(reply)
            if text:
                return stdout.read(length)
        if real:
            return found
        return None if restype is None else restype(integer).value

    def _ended(self) -> ArmError:
        return ArmError(f"{self._name} ended with {self._process.wait()}; its stderr says why")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def _ranges(process: str) -> list[tuple[int, int]]:
    lines = Path(f"/proc/{process}/maps").read_text().splitlines()
    pairs = [line.split(maxsplit=1)[0].split("-") for line in lines if "[vsyscall]" not in line]
    return [(int(first, 16), int(end, 16)) for first, end in pairs]


def _overlaps(some: list[tuple[int, int]], others: list[tuple[int, int]]) -> bool:
    return any(a < d and c < b for a, b in some for c, d in others)


@functools.cache
def library(level: str, processor: Processor) -> ArmLibrary:
    """One process for each, kept until the tests end (`close_all`)."""
    made = ArmLibrary(level, processor)
    _open.append(made)
    return made


_open: list[ArmLibrary] = []


def close_all() -> None:
    """End all processes."""
    for made in _open:
        made.close()
    _open.clear()
    library.cache_clear()
