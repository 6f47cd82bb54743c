"""The compiled part of what every packet passes through: `native.c`, built on first use.

It is a fraction of the cost of the same in numpy, which goes on serving where there is no C
compiler. The library lies in $XDG_CACHE_HOME/headstart/gateway, named by a hash of source, flags,
compiler and processor, and is put in place by an atomic rename. (`kernels` builds like this too,
but a gateway imports neither it nor torch.)
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
# Nothing fuses or is put in another order: the same samples give the same bits in any packets, and
# on any processor. A word on the edge has turned with the last bit of a few samples.
EXACT = ("-ffp-contract=off", "-fno-trapping-math")  # the latter changes no number
FLAGS = ("-std=gnu11", "-O3", "-march=native", *EXACT, "-fPIC", "-shared")
COMPILE_TIMEOUT_S = 60.0
BLOCK_MAX, HISTORY_MAX, OUTPUTS_MAX = 480, 192, 480  # as in native.c
SWITCH = "HEADSTART_FRONT"
"""`numpy` in this variable leaves the compiled part out."""

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
    """Memory for a function to write to, and its address as ctypes passes it on quickest."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.buffer = ctypes.create_string_buffer(size)
        self.at = ctypes.c_void_p(ctypes.addressof(self.buffer))


class CompiledBlocks:
    """One stream's `headstart.gateway.audio.resample.Blocks`."""

    def __init__(
        self, resample: Any, matrix: Floats, block: int, history: int, step: int, outputs: int
    ) -> None:
        self.held_samples = 0
        self._resample = resample
        self._matrix = matrix  # its memory is the stream's
        self._block = block
        self._out_bytes = 2 * (block // step * outputs)
        self._stream = _Stream(matrix.ctypes.data, history, block, step, outputs, 0)
        self._at = ctypes.c_void_p(ctypes.addressof(self._stream))
        self._out = CompiledNoiseFloor(0)

    def feed(self, pcm: bytes) -> bytes:
        samples = len(pcm) // 2
        blocks, self.held_samples = divmod(self.held_samples + samples, self._block)
        size = blocks * self._out_bytes
        if size != self._out.size:  # the next packet will be as long
            self._out = CompiledNoiseFloor(size)
        self._resample(self._at, pcm, samples, self._out.at)
        return self._out.buffer.raw


class NativeAudio:
    """The library's functions. Called with the GIL held: they take microseconds."""

    def __init__(self, library: Path) -> None:
        loaded = ctypes.PyDLL(str(library))
        size = ctypes.c_long
        # Without types to convert to, a call takes half as long: these are every packet's, and get
        # what they are called with as it is: addresses in `c_void_p`, `bytes`, and ints for C's.
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
        """Of a `headstart.gateway.audio.native_vad.CompiledScore`."""
        self.judge.restype = None

    @staticmethod
    def has_room(block: int, history: int, outputs: int) -> bool:
        """For a stream with so many samples in and out every 10 ms."""
        return block <= BLOCK_MAX and history <= HISTORY_MAX and outputs <= OUTPUTS_MAX

    def blocks(self, matrix: Floats, block: int, history: int, step: int) -> CompiledBlocks:
        """A new stream; `matrix`: float32[history + step, outputs], contiguous."""
        assert matrix.flags.c_contiguous
        assert matrix.shape[0] == history + step
        return CompiledBlocks(self._resample, matrix, block, history, step, matrix.shape[1])

    def mean_square(self, pcm: bytes) -> float:
        """Of s16 samples, about their mean."""
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
    """The compiled front; None, and one line in the log, where it cannot be had."""
    if os.environ.get(SWITCH) == "numpy":
        return None
    try:
        return NativeAudio(build())
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("sound is handled by numpy, at five times the cost: %s", error)
        return None


def build() -> Path:
    """The library's path, compiled if it is not there. Raises `OSError` or `SubprocessError`."""
    names = (os.environ.get("CC", ""), *COMPILERS)
    compiler = next((found for name in names if name and (found := shutil.which(name))), None)
    if compiler is None:
        raise FileNotFoundError(f"no C compiler found (looked for $CC, {', '.join(COMPILERS)})")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(base) / "headstart" / "gateway" / f"front-{_fingerprint(compiler)}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".building-") as folder:
            made = Path(folder) / path.name
            command = [compiler, *FLAGS, str(SOURCE), "-lm", "-o", str(made)]
            subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_TIMEOUT_S)
            made.replace(path)
    return path


def _fingerprint(compiler: str) -> str:
    version = subprocess.run(
        [compiler, "--version"], check=True, capture_output=True, timeout=COMPILE_TIMEOUT_S
    )
    digest = hashlib.sha256(SOURCE.read_bytes() + version.stdout)
    digest.update(" ".join((*FLAGS, platform.machine(), _processor())).encode())
    return digest.hexdigest()[:20]


def _processor() -> str:
    """What -march=native depends on: a cache that machines share must not mix them."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor()
    lines = info.read_text(errors="replace").split("\n\n")[0].splitlines()
    return "".join(line for line in lines if line.startswith(("model name", "flags", "Features")))
