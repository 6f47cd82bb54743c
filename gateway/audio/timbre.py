"""How far the timbre of a short sound moves: hardly at all in a hum, far in a word.

A word goes from one sound of the mouth to others; "mm", "uh" and "ah" stay where they are. Of each
25 ms, the first cepstral coefficients describe the timbre without its level and pitch. The `spread`
is the distance from their median that four fifths of the loud frames stay below.

                     80 % below   (packaged voices of the development half, docs/endpointing.md)
    uh, ah, uh-huh   0.7 to 2.0
    mm, hmm, mm-hmm  0.6 to 2.5
    single words     1.5 to 7.1, half of them over 2.6; "hey" 1.1 to 1.9
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headstart.gateway.audio.clock import ENGINE_RATE_HZ, ms_to_engine_samples

FRAME_SAMPLES = ms_to_engine_samples(25)
HOP_SAMPLES = ms_to_engine_samples(10)
FFT_SAMPLES = 512
BANDS = 16
LOW_HZ, HIGH_HZ = 100.0, 5_000.0
COEFFICIENTS = 6
LOUD_DB = 20.0
"""Frames that are quieter than the loudest one by more than this are pause, or the room."""
SHARE_PERCENT = 80.0
FRAMES_MAX = 200
"""2 s: what lasts longer is no hum, and need not be looked at."""
POWER_FLOOR = 100.0  # of a band, in units of s16: digital silence has a logarithm too

Floats = npt.NDArray[np.float64]


def _mel(hz: float) -> float:
    return float(2595.0 * np.log10(1.0 + hz / 700.0))


def _bands() -> Floats:
    """Triangular filters of equal width in mel, [BANDS, FFT_SAMPLES // 2 + 1]."""
    edges = 700.0 * (10.0 ** (np.linspace(_mel(LOW_HZ), _mel(HIGH_HZ), BANDS + 2) / 2595.0) - 1.0)
    hz = np.fft.rfftfreq(FFT_SAMPLES, 1.0 / ENGINE_RATE_HZ)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (hz - low) / (middle - low), (high - hz) / (high - middle)
    return np.clip(np.minimum(rising, falling), 0.0, None)


_BANDS = _bands()
_WINDOW = np.hanning(FRAME_SAMPLES)
_COSINES = np.cos(
    np.pi * np.outer(np.arange(BANDS) + 0.5, np.arange(1, COEFFICIENTS + 1)) / BANDS
) / (BANDS / 2)


class Timbre:
    """Of one utterance. Feed its sound as it comes, in pieces of any size."""

    def __init__(self) -> None:
        self._rest = np.empty(0, np.int16)
        self._power_db: list[float] = []
        self._cepstra: list[Floats] = []

    def feed(self, pcm: bytes) -> None:
        """s16 mono at 16 kHz. What comes after `FRAMES_MAX` frames is not looked at."""
        sound = np.concatenate([self._rest, np.frombuffer(pcm, np.int16)])
        frames = max(0, 1 + (len(sound) - FRAME_SAMPLES) // HOP_SAMPLES)
        self._rest = sound[frames * HOP_SAMPLES :]
        wanted = min(frames, FRAMES_MAX - len(self._power_db) + 1)
        if wanted <= 0:
            return
        cut = np.lib.stride_tricks.sliding_window_view(sound, FRAME_SAMPLES)[::HOP_SAMPLES][:wanted]
        power = np.abs(np.fft.rfft(cut * _WINDOW, FFT_SAMPLES)) ** 2
        bands = np.log(power @ _BANDS.T + POWER_FLOOR)
        self._cepstra += list((bands - bands.mean(axis=1, keepdims=True)) @ _COSINES)
        self._power_db += list(10.0 * np.log10(power.sum(axis=1) + 1.0))

    @property
    def spread(self) -> float | None:
        """None: nothing was fed, or more than a hum lasts."""
        if not self._power_db or len(self._power_db) > FRAMES_MAX:
            return None
        power_db = np.array(self._power_db)
        loud = np.array(self._cepstra)[power_db > power_db.max() - LOUD_DB]
        distance = np.linalg.norm(loud - np.median(loud, axis=0), axis=1)
        return float(np.percentile(distance, SHARE_PERCENT))
