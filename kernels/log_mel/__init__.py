"""Whisper's log-mel power of audio frames: 25 ms each under a Hann window, log10, without clamping
from above.

The kernel's bits are the same for any cut of the sound, any number of threads and any processor.
See README.md.
"""

from __future__ import annotations

import ctypes
import functools

import torch
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.log_mel import native, reference
from headstart.kernels.log_mel.tables import FFT_SAMPLES, SAMPLE_RATE_HZ, Tables, make_tables
from headstart.kernels.native import library, require

__all__ = ["FFT_SAMPLES", "SAMPLE_RATE_HZ", "LogMelFilters"]


@functools.cache
def _tables(mels: int) -> Tables:
    """Computed once per process: thirty digits take some hundredths of a second."""
    return make_tables(mels)


class LogMelFilters:
    """Mel filters from 0 to 8,000 Hz for audio of 16 kHz."""

    def __init__(self, mels: int) -> None:
        """`mels`: number of filters. Raises KernelInputError below one."""
        if mels < 1:
            raise KernelInputError(f"mels: expected at least one, got {mels}")
        self._tables = _tables(mels)
        self._native = native.native_tables(self._tables)

    def __call__(self, samples: Tensor, hop: int, *, backend: str | None = None) -> Tensor:
        """fp64 [n] -> fp64 [frames, mels]: log10 of the power, at least -10, of every complete
        frame of 400 samples, `hop` apart. Raises KernelInputError."""
        require(samples, "samples", (None,), torch.float64)
        if hop < 1:
            raise KernelInputError(f"hop: expected at least one sample, got {hop}")
        frames = max((len(samples) - FFT_SAMPLES) // hop + 1, 0)
        lib = library("log_mel", _declare, backend)
        if lib is None:
            return reference.log_mel(self._tables, samples, frames, hop)
        return native.log_mel(lib, self._native, self._tables.mels, samples, frames, hop)


def _declare(lib: ctypes.CDLL) -> None:
    native.declare(lib)
