"""Smart-turn v3.2, the end-of-turn model that Pipecat 1.14 runs, as a peer: how likely it is, by
the sound alone, that a person has finished.

Its features are Whisper's log-mel spectrogram of the last 8 s, scaled to unit variance and padded
with silence in front.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.engine.weights import ensure

RATE_HZ = 16_000
SAMPLES = 8 * RATE_HZ
PRE_SPEECH_MS = 500
N_FFT, HOP, MELS = 400, 160, 80


class SmartTurn:
    """The model, on one thread."""

    def __init__(self) -> None:
        runtime: Any = importlib.import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        path = ensure("smart-turn-v3.2")
        self._model = runtime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        self._mels = _mel_filters()

    def probability(self, sound: npt.NDArray[np.int16]) -> float:
        """That the turn in int16[n] at 16 kHz is over; n counts from `PRE_SPEECH_MS` before the
        speech until now."""
        features = self._features(sound[-SAMPLES:].astype(np.float64) / 32768)
        out = self._model.run(None, {"input_features": features[None]})
        return float(np.asarray(out[0]).reshape(-1)[0])

    def _features(self, sound: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """float32[80, 800]."""
        padded = np.pad(sound, (SAMPLES - len(sound), 0))
        scaled = (padded - padded.mean()) / np.sqrt(padded.var() + 1e-7)
        wide = np.pad(scaled, N_FFT // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(wide, N_FFT)[::HOP][: SAMPLES // HOP]
        window = np.hanning(N_FFT + 1)[:-1]
        power = np.abs(np.fft.rfft(frames * window, axis=-1)) ** 2
        log = np.log10(np.maximum(self._mels @ power.T, 1e-10))
        return np.asarray((np.maximum(log, log.max() - 8) + 4) / 4, np.float32)


def _mel_filters() -> npt.NDArray[np.float64]:
    """[80, 201]: triangles of equal area on Slaney's scale (linear to 1 kHz, then logarithmic)."""
    step = np.log(6.4) / 27
    marks = np.linspace(0, 15 + np.log(RATE_HZ / 2 / 1000) / step, MELS + 2)
    edges = np.where(marks < 15, marks * 200 / 3, 1000 * np.exp(step * (marks - 15)))
    at = np.linspace(0, RATE_HZ / 2, N_FFT // 2 + 1)
    low, middle, high = (edges[i : i + MELS, None] for i in range(3))
    rising, falling = (at - low) / (middle - low), (high - at) / (high - middle)
    return np.asarray(np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low))
