"""The interface of a voice in the TTS worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
import soxr

Samples = npt.NDArray[np.int16]
RATE_HZ = 24_000


class VoiceUnavailable(Exception):
    """A voice cannot be loaded; the message names the missing package or files."""


class Synthesiser(Protocol):
    """A voice. Not thread-safe: one caller at a time."""

    name: str

    def speak(self, text: str, speed: float) -> Iterator[Samples]:
        """int16[n] pieces at 24 kHz, made one at a time on request, so that a caller stops by not
        asking. `speed` from 0.25 to 4. Empty for text without words."""


class ToWire:
    """Resamples a voice's own rate to `RATE_HZ`, across the pieces of a clause. Not with
    `gateway.audio.resample`: 22,050 Hz has no whole number of samples in 10 ms, and soxr's delay
    does not matter inside a clause."""

    def __init__(self, rate_hz: int) -> None:
        self._stream = soxr.ResampleStream(rate_hz, RATE_HZ, 1, dtype="int16")

    def feed(self, sound: Samples) -> Samples:
        """int16[n] in; the output that is ready."""
        out: Samples = self._stream.resample_chunk(sound)
        return out

    def flush(self) -> Samples:
        """The rest."""
        out: Samples = self._stream.resample_chunk(np.empty(0, np.int16), last=True)
        return out
