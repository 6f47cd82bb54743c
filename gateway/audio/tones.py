"""Tones, which have a pitch as voices have but are no voice: dial tones, DTMF, plain melodies.

A voice is never as steady as they are: its pitch moves by some percent within a few periods, and
its upper partials with it. What is asked of 30 ms of sound, short enough for a key's 50 ms:

    two partials   below 2 kHz it is two unchanging sine waves or one, to `PARTIALS_REST`
    one note       below 2 kHz it repeats itself with a period of 2.5 to 14.5 ms, to `NOTE_PERIODIC`

A hummed "m" comes near to both, so what comes near (`MAYBE`) is only waited out. `native.c` has the
same, compiled.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.int16]

# Of the sound's power, what two sine waves leave over. First windows of people's speech (every
# other prompt of the even half, other languages' beside them): a thousandth have less than 0.0009.
PARTIALS_REST = 0.0008
MAYBE_PARTIALS_REST = 0.01
# The highest normalised autocorrelation. People's: a thousandth have more than 0.9994.
NOTE_PERIODIC = 0.9996
MAYBE_NOTE_PERIODIC = 0.9985

HEARD_SAMPLES = 480  # 30 ms at 16 kHz: a window and half of the one before it
LOW = 4  # samples of which one is made for the partials
LAG_FIRST, LAG_END = 40, 233  # at 16 kHz
SMOOTH = np.convolve(np.ones(4, np.int64), np.ones(5, np.int64))  # below some 2 kHz, for the note
LEAST_SHARE = 1e-9  # of a matrix' diagonal: less, and two sine waves are one


class Tone(IntEnum):
    """`YES` and `MAYBE` are no voice yet."""

    NO = 0
    MAYBE = 1
    YES = 2


def tone_in(heard: Samples) -> Tone:
    """Whether int16[480] at 16 kHz, in which there is a pitch, is a tone."""
    rest = partials_rest(heard)
    if rest <= PARTIALS_REST:
        return Tone.YES
    periodic = note_periodic(heard)
    if periodic >= NOTE_PERIODIC:
        return Tone.YES
    near = rest <= MAYBE_PARTIALS_REST or periodic >= MAYBE_NOTE_PERIODIC
    return Tone.MAYBE if near else Tone.NO


def partials_rest(heard: Samples) -> float:
    """The share of the sound's power that two sine waves leave over, 0 to some 2.

    Two of them obey x[n] + x[n-4] = a (x[n-1] + x[n-3]) + b x[n-2]: a and b by least squares. Of
    the sound below 2 kHz, at 4 kHz, its differences, so that its low partials do not drown others.
    All sums are of whole numbers.
    """
    sums = heard.reshape(-1, LOW).sum(axis=1, dtype=np.int64)
    x = np.diff(sums[1:] + sums[:-1])
    ends, inner, middle = x[4:] + x[:-4], x[3:-1] + x[1:-3], x[2:-2]
    aa, ab, bb = (float(i @ j) for i, j in ((inner, inner), (inner, middle), (middle, middle)))
    ea, eb, ee = (float(ends @ other) for other in (inner, middle, ends))
    power = float(x @ x)
    determinant = aa * bb - ab * ab
    if determinant > LEAST_SHARE * aa * bb:
        a = (ea * bb - eb * ab) / determinant
        b = (eb * aa - ea * ab) / determinant
        rest = ee - a * ea - b * eb
    else:
        rest = ee - ea * ea / max(aa, 1.0)
    return rest / max(power, 1.0)


def note_periodic(heard: Samples) -> float:
    """The highest normalised autocorrelation between samples too, -1 to some 1. All sums are of
    whole numbers."""
    x = np.convolve(heard.astype(np.int64), SMOOTH, "valid")
    size = len(x)
    x -= int(x.sum()) // size
    full = np.correlate(x, x, "full")[size - 1 :]
    energy = np.concatenate(([0], np.cumsum(x * x)))
    lags = np.arange(LAG_FIRST - 1, LAG_END + 1)
    power = (energy[size] - energy[lags]).astype(np.float64) * energy[size - lags]
    share = full[lags] / np.sqrt(np.maximum(power, 1.0))
    before, at, after = share[:-2], share[1:-1], share[2:]
    peak = (at >= before) & (at >= after)
    bend = before - 2.0 * at + after
    between = np.where(bend < 0.0, (before - after) ** 2 / np.minimum(8.0 * bend, -1e-12), 0.0)
    return float(np.max((at - between)[peak], initial=-1.0))
