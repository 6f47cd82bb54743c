"""Synthetic sound for the listening tests: what webrtcvad takes for speech, and what it does not.

All of it is s16 mono at 24 kHz, the protocol's rate, and the same on every run.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headstart.gateway.audio.clock import CLIENT_RATE_HZ, ms_to_client_samples

Samples = npt.NDArray[np.int16]

FORMANTS_HZ = (700.0, 1220.0, 2600.0)
FORMANT_WIDTHS_HZ = (110.0, 130.0, 180.0)
SPEECH_PEAK = 12_000


def voice(ms: int, seed: int = 1) -> Samples:
    """A vowel sung by a glottis at about 120 Hz: int16[n]. Four syllables a second, 20 dB between
    their middles and the gaps, as in people's speech; never quite silent."""
    rng = np.random.default_rng(seed)
    n = ms_to_client_samples(ms)
    t = np.arange(n) / CLIENT_RATE_HZ
    pitch_hz = 120.0 + 12.0 * np.sin(2 * np.pi * 2.7 * t + rng.uniform(0, 6))
    phase = 2 * np.pi * np.cumsum(pitch_hz) / CLIENT_RATE_HZ
    wave = np.zeros(n)
    for harmonic in range(1, 30):
        f = 120.0 * harmonic
        gain = sum(
            1.0 / (1.0 + ((f - centre) / width) ** 2)
            for centre, width in zip(FORMANTS_HZ, FORMANT_WIDTHS_HZ, strict=True)
        )
        wave += gain * np.sin(harmonic * phase)
    wave *= 0.55 + 0.45 * np.sin(2 * np.pi * 4.0 * t)
    wave += 0.01 * rng.standard_normal(n)
    return np.rint(SPEECH_PEAK * wave / max(1.0, float(np.abs(wave).max()))).astype(np.int16)


def hiss(ms: int, level: int = 6, seed: int = 2) -> Samples:
    """A quiet room: white noise of `level` units RMS (6 is -75 dBFS)."""
    rng = np.random.default_rng(seed)
    return np.rint(rng.standard_normal(ms_to_client_samples(ms)) * level).astype(np.int16)


def join(*parts: Samples) -> bytes:
    return np.concatenate(parts).tobytes()
