"""The compiled part of per-packet audio processing: `native.c`, built on first use.

It takes a fraction of numpy's time; numpy is used where there is no C compiler. The library is
stored in $XDG_CACHE_HOME/headstart/gateway, named by a hash of source, flags, compiler and
processor, and put in place by an atomic rename. (`kernels` is built the same way, but the gateway
imports neither it nor torch.)

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
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

log = logging.getLogger("headstart.native_audio")

SOURCE = Path(__file__).with_name("native.c")
COMPILERS = ("cc", "gcc", "clang")
# No fused or reordered operations: the same samples give the same bits whatever the packet sizes
# and the processor. The last bit of a few samples has been seen to change a recognised word.
EXACT = ("-ffp-contract=off", "-fno-trapping-math")  # the latter changes no number
# For 64-bit Arm there is nothing to add: its vectors belong to all of these processors.
PROCESSOR = ("-march=native",) if platform.machine().lower() in ("x86_64", "amd64") else ()
FLAGS = ("-std=gnu11", "-O3", *PROCESSOR, *EXACT, "-fPIC", "-shared")
COMPILE_TIMEOUT_S = 60.0
BLOCK_MAX, HISTORY_MAX, OUTPUTS_MAX = 480, 192, 480  # as in native.c
SWITCH = "HEADSTART_FRONT"
"""Set this variable to `numpy` to disable the compiled part."""

Floats = npt.NDArray[np.float32]


class _Stream(ctypes.Structure):
    """`struct stream` of native.c."""

    _fields_ = (
        ("matrix", ctypes.c_void_p),
        ("history", ctypes.c_long),
        ("block", ctypes.c_long),
        ("step", ctypes.c_long),
        ("outputs", ctypes.c_long),
        ("held", ctypes.c_long),
        ("kept", ctypes.c_int16 * (HISTORY_MAX + BLOCK_MAX)),
    )


class CompiledNoiseFloor:
    """Memory for a function's output, and its address in the form that ctypes passes fastest."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.buffer = ctypes.create_string_buffer(size)
        self.at = ctypes.c_void_p(ctypes.addressof(self.buffer))


class CompiledBlocks:
    """The compiled `headstart.gateway.audio.resample.Blocks` of one stream."""

    def __init__(
        self, resample: Any, matrix: Floats, block: int, history: int, step: int, outputs: int
    ) -> None:
        self.held_samples = 0
        self._resample = resample
        self._matrix = matrix  # keeps the memory alive that the stream points to
        self._block = block
        self._out_bytes = 2 * (block // step * outputs)
        self._stream = _Stream(matrix.ctypes.data, history, block, step, outputs, 0)
        self._at = ctypes.c_void_p(ctypes.addressof(self._stream))
        self._out = CompiledNoiseFloor(0)

    def feed(self, pcm: bytes) -> bytes:
        samples = len(pcm) // 2
        blocks, self.held_samples = divmod(self.held_samples + samples, self._block)
        size = blocks * self._out_bytes
        if size != self._out.size:  # the next packet is likely to be as long
            self._out = CompiledNoiseFloor(size)
        self._resample(self._at, pcm, samples, self._out.at)
        return self._out.buffer.raw


class NativeAudio:
    """The library's functions. Called with the GIL held, because they take microseconds."""

    def __init__(self, library: Path) -> None:
        loaded = ctypes.PyDLL(str(library))
        size = ctypes.c_long
        # Without argument types a ctypes call takes half the time. These are called for every
        # packet, so they get arguments that need no conversion: addresses in `c_void_p`, `bytes`,
        # and ints for C's.
        self._resample = loaded.headstart_resample
        self._resample.restype = None
        self._mean_square = loaded.headstart_mean_square
        self._mean_square.argtypes = [ctypes.c_char_p, size]
        self._mean_square.restype = ctypes.c_double
        self._voicing = loaded.headstart_voicing
        self._voicing.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        self._voicing.restype = ctypes.c_double
        self._partials_rest = loaded.headstart_partials_rest
        self._partials_rest.argtypes = [ctypes.c_char_p]
        self._partials_rest.restype = ctypes.c_double
        self._note_periodic = loaded.headstart_note_periodic
        self._note_periodic.argtypes = [ctypes.c_char_p]
        self._note_periodic.restype = ctypes.c_double
        self.judge = loaded.headstart_judge
        """The size of a `headstart.gateway.audio.native_vad.CompiledScore`'s state."""
        self.judge.restype = None

    @staticmethod
    def has_room(block: int, history: int, outputs: int) -> bool:
        """Whether a stream with these sizes per 10 ms fits the compiled buffers."""
        return block <= BLOCK_MAX and history <= HISTORY_MAX and outputs <= OUTPUTS_MAX

    def blocks(self, matrix: Floats, block: int, history: int, step: int) -> CompiledBlocks:
        """A new stream; `matrix`: float32[history + step, outputs], contiguous."""
        assert matrix.flags.c_contiguous
        assert matrix.shape[0] == history + step
        return CompiledBlocks(self._resample, matrix, block, history, step, matrix.shape[1])

    def mean_square(self, pcm: bytes) -> float:
        """The mean square of s16 samples, about their mean."""
        found: float = self._mean_square(pcm, len(pcm) // 2)
        return found

    def voicing(self, last: bytes, window: bytes) -> float:
        """See `headstart.gateway.audio.vad.voicing`; two windows of s16[320]."""
        found: float = self._voicing(last, window)
        return found

    def partials_rest(self, heard: bytes) -> float:
        """See `headstart.gateway.audio.tones.partials_rest`; s16[480]."""
        found: float = self._partials_rest(heard)
        return found

    def note_periodic(self, heard: bytes) -> float:
        """See `headstart.gateway.audio.tones.note_periodic`; s16[480]."""
        found: float = self._note_periodic(heard)
        return found


@functools.cache
def native_audio() -> NativeAudio | None:
    """The compiled functions; None, with one line in the log, if they cannot be built."""
    if os.environ.get(SWITCH) == "numpy":
        return None
    try:
        return NativeAudio(build())
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("sound is handled by numpy, at five times the cost: %s", error)
        return None


def build() -> Path:
    """The library's path; compiles it if needed. Raises `OSError` or `SubprocessError`."""
    names = (os.environ.get("CC", ""), *COMPILERS)
    compiler = next((found for name in names if name and (found := shutil.which(name))), None)
    if compiler is None:
        raise FileNotFoundError(f"no C compiler found (looked for $CC, {', '.join(COMPILERS)})")
    path = cache_folder() / f"front-{_fingerprint(compiler)}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".building-") as folder:
            made = Path(folder) / path.name
            command = [compiler, *FLAGS, str(SOURCE), "-lm", "-o", str(made)]
            subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_TIMEOUT_S)
            made.replace(path)
    return path


def cache_folder() -> Path:
    """Where the gateway's processes keep what they make once per machine. Raises `OSError` if the
    user has no home directory."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "headstart" / "gateway"
    try:
        home = Path.home()
    except RuntimeError as error:  # a user id without a name, as containers have them
        raise FileNotFoundError("no home directory for the cache: set XDG_CACHE_HOME") from error
    return home / ".cache" / "headstart" / "gateway"


def _fingerprint(compiler: str) -> str:
    version = subprocess.run(
        [compiler, "--version"], check=True, capture_output=True, timeout=COMPILE_TIMEOUT_S
    )
    digest = hashlib.sha256(SOURCE.read_bytes() + version.stdout)
    digest.update(" ".join((*FLAGS, platform.machine(), processor())).encode())
    return digest.hexdigest()[:20]


def processor() -> str:
    """The CPU model, on which compiled code depends: machines may share a cache."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor()
    lines = info.read_text(errors="replace").split("\n\n")[0].splitlines()
    return "".join(line for line in lines if line.startswith(("model name", "flags", "Features")))
