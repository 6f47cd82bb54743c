"""Tables of the log-mel spectrogram: sines, the Hann window, the mel filters.

They are rounded from thirty decimal digits, because the C library's and torch's functions differ in
the last bits between processors. Mel scale and filters are Slaney's, as in `librosa` and Whisper:
linear below 1,000 Hz, above it 27 filters per factor of 6.4 in frequency; each filter is a triangle
of area 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal, localcontext

import torch
from torch import Tensor

FFT_SAMPLES = 400
BINS = FFT_SAMPLES // 2 + 1
SAMPLE_RATE_HZ = 16_000
_DIGITS = Context(prec=40)
_PI = Decimal("3.14159265358979323846264338327950288419716939937511")
_LINEAR_HZ = Decimal(200) / 3  # a mel, below
_KNEE_HZ, _KNEE_MELS = Decimal(1000), Decimal(15)
_FACTOR, _FACTOR_MELS = Decimal("6.4"), Decimal(27)


@dataclass(frozen=True, eq=False)
class Tables:
    """`cosine`, `sine` fp64 [400]: of n / 400 turns. `window` fp64 [400]: periodic Hann window.
    `filters` fp64 [201, mels]."""

    mels: int
    cosine: Tensor
    sine: Tensor
    window: Tensor
    filters: Tensor


def make_tables(mels: int) -> Tables:
    """Tables for `mels` filters from 0 to 8,000 Hz."""
    with localcontext(_DIGITS):
        exact = [_cosine(_nearest(n)) for n in range(FFT_SAMPLES)]
        window = [float((1 - value) / 2) for value in exact]
        filters = _filters(mels)
    cosine = torch.tensor([float(value) for value in exact], dtype=torch.float64)
    return Tables(
        mels,
        cosine=cosine,
        sine=cosine.roll(FFT_SAMPLES // 4),  # sin n = cos(n - a quarter turn)
        window=torch.tensor(window, dtype=torch.float64),
        filters=torch.tensor(filters, dtype=torch.float64),
    )


def _nearest(n: int) -> int:
    """The angle of at most half a turn with the same cosine as n."""
    return min(n, FFT_SAMPLES - n)


def _cosine(n: int) -> Decimal:
    """Cosine of n / 400 turns, n from 0 to 200, by its series."""
    if n > FFT_SAMPLES // 4:
        return -_cosine(FFT_SAMPLES // 2 - n)
    if n == FFT_SAMPLES // 4:
        return Decimal(0)
    square = (2 * _PI * n / FFT_SAMPLES) ** 2
    total = term = Decimal(1)
    for k in range(1, 20):
        term *= -square / (2 * k * (2 * k - 1))
        total += term
    return total


def _hertz(mel: Decimal) -> Decimal:
    if mel < _KNEE_MELS:
        return mel * _LINEAR_HZ
    return _KNEE_HZ * ((mel - _KNEE_MELS) / _FACTOR_MELS * _FACTOR.ln()).exp()


def _filters(mels: int) -> list[list[float]]:
    """[201][mels]: triangle m rises from corner m to corner m + 1 and falls to corner m + 2."""
    highest_hz = Decimal(SAMPLE_RATE_HZ) / 2
    highest = _KNEE_MELS + (highest_hz / _KNEE_HZ).ln() / _FACTOR.ln() * _FACTOR_MELS
    corners = [_hertz(highest * m / (mels + 1)) for m in range(mels + 2)]
    table = []
    for k in range(BINS):
        hertz = Decimal(k) * SAMPLE_RATE_HZ / FFT_SAMPLES
        row = []
        for low, middle, high in zip(corners, corners[1:], corners[2:], strict=False):
            if not low < hertz < high:  # nearly everywhere
                row.append(0.0)
                continue
            height = min((hertz - low) / (middle - low), (high - hertz) / (high - middle))
            row.append(float(height * 2 / (high - low)))
        table.append(row)
    return table
