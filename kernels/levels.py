"""Levels of vector instructions that the C kernels are written for: flags, and which are here.

The library is compiled on the machine that runs it, so the compiler's `-march=native` takes the
highest level of the processor. The others can be asked for by name, to test and to compare. All
have the same bits. What a processor has is what the compiler says of it: an old one knows fewer.
"""

from __future__ import annotations

import functools
import platform
import subprocess
from dataclasses import dataclass

MACHINE = platform.machine().lower()
IS_X86 = MACHINE in ("x86_64", "amd64")
NATIVE_FLAGS = ("-march=native",)


@dataclass(frozen=True)
class Level:
    """`flags` compile it, after those of the highest level. `needs`: the macros with which the
    compiler says that the processor has it; level.h asks for the same."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]


_AVX2 = frozenset({"__AVX2__", "__FMA__", "__F16C__"})
_AVX512 = {f"__AVX512{part}__" for part in ("F", "BW", "DQ", "VL", "VNNI")}
# Highest first. `scalar` is the portable path, which processors without any of them run. On x86-64
# it is compiled for the oldest ones, which have no fused multiply-add.
LEVELS = (
    Level("avx512", (), _AVX2 | _AVX512),
    Level("avxvnni", ("-mno-avx512f",), _AVX2 | {"__AVXVNNI__"}),
    Level("avx2", ("-march=haswell",), _AVX2),
    Level(
        "scalar",
        ("-DHEADSTART_SCALAR", *(("-march=x86-64",) if IS_X86 else ())),
        frozenset(),
    ),
)
NAMES = tuple(level.name for level in LEVELS)


def flags_of(name: str) -> tuple[str, ...]:
    """What compiles level `name`, or the highest one for `native`."""
    if name == "native":
        return NATIVE_FLAGS
    return (*NATIVE_FLAGS, *next(level.flags for level in LEVELS if level.name == name))


@functools.cache
def here(compiler: str) -> tuple[str, ...]:
    """Names of the levels that this processor has, as `compiler` sees it; highest first."""
    done = subprocess.run(
        [compiler, *NATIVE_FLAGS, "-dM", "-E", "-x", "c", "-"],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    defined = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("#define")}
    return tuple(level.name for level in LEVELS if level.needs <= defined)
