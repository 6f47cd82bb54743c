"""Levels of vector instructions that the C kernels are written for: flags, and which are here.

The library is compiled on the machine that runs it, for the highest level that its processor has;
the others can be asked for by name, to test and to compare. All have the same bits. What an x86-64
processor has is what the compiler says of `-march=native`: an old one knows fewer. What a processor
of 64-bit Arm has the system says (`arm_features`), and the compiler must know it too.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MACHINE = platform.machine().lower()
IS_X86 = MACHINE in ("x86_64", "amd64")
IS_ARM = MACHINE in ("aarch64", "arm64")
# Compilers for Arm do not all know `native`; there each level's own flags say everything.
NATIVE_FLAGS = () if IS_ARM else ("-march=native",)


@dataclass(frozen=True)
class Level:
    """`flags` compile it, after NATIVE_FLAGS. `needs`: the macros with which the compiler says that
    it has the level's instructions; level.h asks for the same. `features`: of `arm_features`."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]
    features: frozenset[str] = frozenset()


_AVX2 = frozenset({"__AVX2__", "__FMA__", "__F16C__"})
_AVX512 = {f"__AVX512{part}__" for part in ("F", "BW", "DQ", "VL", "VNNI")}
# Highest first.
X86_LEVELS = (
    Level("avx512", (), _AVX2 | _AVX512),
    Level("avxvnni", ("-mno-avx512f",), _AVX2 | {"__AVXVNNI__"}),
    Level("avx2", ("-march=haswell",), _AVX2),
)
_NEON = frozenset({"__aarch64__", "__ARM_NEON"})
_DOTPROD = _NEON | {"__ARM_FEATURE_DOTPROD"}
ARM_LEVELS = (
    Level(
        "i8mm",
        ("-march=armv8.2-a+dotprod+i8mm",),
        _DOTPROD | {"__ARM_FEATURE_MATMUL_INT8"},
        frozenset({"dotprod", "i8mm"}),
    ),
    Level("dotprod", ("-march=armv8.2-a+dotprod",), _DOTPROD, frozenset({"dotprod"})),
    Level("neon", ("-march=armv8-a",), _NEON),
)
# `scalar` is the portable path, which processors without any of them run. On x86-64 it is compiled
# for the oldest ones, which have no fused multiply-add.
SCALAR = Level(
    "scalar", ("-DHEADSTART_SCALAR", *(("-march=x86-64",) if IS_X86 else ())), frozenset()
)
LEVELS = (*X86_LEVELS, *ARM_LEVELS, SCALAR)
NAMES = tuple(level.name for level in LEVELS)

# Linux's getauxval: AT_HWCAP and AT_HWCAP2, and their bits (asm/hwcap.h of arm64).
_HWCAP, _HWCAP2 = 16, 26
_HWCAP_BITS = {"dotprod": (_HWCAP, 1 << 20), "i8mm": (_HWCAP2, 1 << 13)}
_SYSCTL_NAMES = {"dotprod": "hw.optional.arm.FEAT_DotProd", "i8mm": "hw.optional.arm.FEAT_I8MM"}


def processor_name() -> str:
    """The processor's name, as the system states it, for people."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def flags_of(name: str, compiler: str) -> tuple[str, ...]:
    """What compiles level `name`, or the highest one here for `native`."""
    if name == "native":
        if not IS_ARM:
            return NATIVE_FLAGS
        name = here(compiler)[0]
    return (*NATIVE_FLAGS, *next(level.flags for level in LEVELS if level.name == name))


@functools.cache
def here(compiler: str) -> tuple[str, ...]:
    """Names of the levels that this processor has and `compiler` knows; highest first."""
    if IS_ARM:
        features = arm_features(_sysctl_features if sys.platform == "darwin" else _auxv_features)
        known = [level for level in ARM_LEVELS if level.features <= features]
        found = [level for level in known if level.needs <= _macros(compiler, level.flags)]
    else:
        native = _macros(compiler, NATIVE_FLAGS)
        found = [level for level in X86_LEVELS if level.needs <= native]
    return tuple(level.name for level in (*found, SCALAR))


def arm_features(ask: Callable[[], frozenset[str]]) -> frozenset[str]:
    """What a processor of 64-bit Arm has besides NEON, of `dotprod` and `i8mm`; nothing where the
    system cannot be asked: slower, the same bits."""
    try:
        return ask()
    except (OSError, AttributeError):
        return frozenset()


def hwcap_features(getauxval: Callable[[int], int]) -> frozenset[str]:
    """The features in Linux's hardware capabilities."""
    return frozenset(name for name, (at, bit) in _HWCAP_BITS.items() if getauxval(at) & bit)


def _auxv_features() -> frozenset[str]:
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.argtypes, getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
    return hwcap_features(getauxval)


def _sysctl_features() -> frozenset[str]:
    """As macOS says."""
    libc = ctypes.CDLL(None)

    def has(name: str) -> bool:
        value, size = ctypes.c_int64(0), ctypes.c_size_t(8)
        failed = libc.sysctlbyname(
            name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
        )
        return not failed and value.value != 0

    return frozenset(feature for feature, name in _SYSCTL_NAMES.items() if has(name))


def _macros(compiler: str, flags: Sequence[str]) -> set[str]:
    """The macros that `compiler` defines with `flags`; none where it refuses them."""
    done = subprocess.run(
        [compiler, *flags, "-dM", "-E", "-x", "c", "-"],
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    return {line.split()[1] for line in done.stdout.splitlines() if line.startswith("#define")}
