"""Pauses within spoken questions: where a recording is cut, and what is heard in between."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.int16]

RATE_HZ = 16_000
SEED = 11
ROOM_LEVEL = 8.0  # RMS of the noise in pauses, s16 units
FRAME = RATE_HZ // 100
EDGE_DBFS = -45.0
CUT_WITHIN = (0.35, 0.65)  # shares of a recording between which it is cut
FADE = RATE_HZ // 200
JOINED_BY = " | "
HALVES = ("tuned", "held_out")


def half_of(text: str) -> str | None:
    """The half of a turn, by the CRC-32 of its sentences: "tuned" (even) or "held_out" (odd), so
    that no sentence is in both; None: it joins one of each."""
    parity = {zlib.crc32(sentence.encode()) % 2 for sentence in text.split(JOINED_BY)}
    return HALVES[parity.pop()] if len(parity) == 1 else None


def room(ms: float) -> Samples:
    """Silence of a quiet room, int16[n] at `RATE_HZ`; the same each time."""
    noise = np.random.default_rng(SEED).standard_normal(round(ms * RATE_HZ / 1000)) * ROOM_LEVEL
    return np.rint(noise).astype(np.int16)


def trimmed(sound: Samples) -> Samples:
    """Without the silence at its ends."""
    loud = np.flatnonzero(levels_dbfs(sound) > EDGE_DBFS)
    if not len(loud):
        return sound[:0]
    return sound[loud[0] * FRAME : (loud[-1] + 1) * FRAME]


def levels_dbfs(sound: Samples) -> npt.NDArray[np.float64]:
    """dBFS of each 10 ms."""
    frames = sound[: len(sound) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    power = (frames**2).mean(axis=1) / 32768.0**2
    return np.asarray(10 * np.log10(np.maximum(power, 1e-10)))


def cut(sound: Samples, within: tuple[float, float] = CUT_WITHIN) -> tuple[Samples, Samples]:
    """Split where it is quietest for 50 ms between two shares of its length; near the middle that
    is usually between words."""
    levels = np.convolve(levels_dbfs(sound), np.ones(5) / 5, "same")
    first, last = (round(share * len(levels)) for share in within)
    at = (first + int(levels[first:last].argmin())) * FRAME
    left, right = sound[:at].copy(), sound[at:].copy()
    ramp = np.linspace(0, 1, FADE)
    left[-FADE:] = (left[-FADE:] * ramp[::-1]).astype(np.int16)
    right[:FADE] = (right[:FADE] * ramp).astype(np.int16)
    return left, right
