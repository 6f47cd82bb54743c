"""G.711, the two telephony codecs with one byte per sample (ITU-T G.711).

`Decoder` and `Encoder` convert such a client's 8 kHz audio to and from s16 at 24 kHz.

"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.audio.resample import StreamResampler

Law = Literal["audio/pcmu", "audio/pcma"]
RATE_HZ = 8_000

_MU_BIAS = 132


def _mu_law(code: int) -> int:
    """Decode a mu-law byte: sign, 3 bits of exponent, 4 of mantissa, inverted."""
    code = ~code & 0xFF
    exponent, mantissa = code >> 4 & 7, code & 15
    size = (((mantissa << 3) + _MU_BIAS) << exponent) - _MU_BIAS
    return -size if code & 0x80 else size


def _a_law(code: int) -> int:
    """Decode an A-law byte; every other bit is inverted."""
    code ^= 0x55
    exponent, mantissa = code >> 4 & 7, code & 15
    size = (mantissa << 4) + 8
    if exponent:
        size = (size + 256) << (exponent - 1)
    return size if code & 0x80 else -size


def _inverse(samples: npt.NDArray[np.int16]) -> npt.NDArray[np.uint8]:
    """uint8[65536]: the nearest code for each sample, indexed by sample + 32768."""
    order = np.argsort(samples, kind="stable")
    known = samples[order].astype(np.int32)
    borders = (known[:-1] + known[1:] + 1) // 2
    places = np.searchsorted(borders, np.arange(-32_768, 32_768), side="right")
    return order[places].astype(np.uint8)


def _table(law: Callable[[int], int]) -> npt.NDArray[np.int16]:
    return np.array([law(code) for code in range(256)], np.int16)


_DECODE: dict[Law, npt.NDArray[np.int16]] = {
    "audio/pcmu": _table(_mu_law),
    "audio/pcma": _table(_a_law),
}
_ENCODE = {law: _inverse(table) for law, table in _DECODE.items()}


def expand(law: Law, data: bytes) -> npt.NDArray[np.int16]:
    """int16[n] at 8 kHz: the decoded samples."""
    return _DECODE[law][np.frombuffer(data, np.uint8)]


def compress(law: Law, samples: npt.NDArray[np.int16]) -> bytes:
    """The nearest code for each 8 kHz sample."""
    return _ENCODE[law][samples.astype(np.int32) + 32_768].tobytes()


class Decoder:
    """One stream of codes to s16 at 24 kHz."""

    def __init__(self, law: Law) -> None:
        self._law: Law = law
        self._resampler = StreamResampler(RATE_HZ, CLIENT_RATE_HZ)

    def feed(self, data: bytes) -> bytes:
        """All audio that is ready; less than 10 ms are held for the next call."""
        return self._resampler.feed(expand(self._law, data)).tobytes()


class Encoder:
    """One stream of s16 at 24 kHz to codes."""

    def __init__(self, law: Law) -> None:
        self._law: Law = law
        self._resampler = StreamResampler(CLIENT_RATE_HZ, RATE_HZ)

    def feed(self, pcm24k: bytes) -> bytes:
        """All codes that are ready; less than 10 ms are held for the next call."""
        samples = np.frombuffer(self._resampler.feed_pcm(pcm24k), np.int16)
        return compress(self._law, samples)
