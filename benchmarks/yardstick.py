"""What streaming is measured against: the same Whisper offline, and how texts are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.ears.mel import SAMPLE_RATE_HZ

WINDOW_S = 30


class Offline:
    """`transformers`: greedy, by windows of 30 s that are padded to 30 s."""

    def __init__(self, directory: Path) -> None:
        from transformers import WhisperFeatureExtractor

        from benchmarks.whisper_peer import whisper_of

        self._features: Any = WhisperFeatureExtractor()  # type: ignore[no-untyped-call]
        self._whisper = whisper_of(directory)

    def transcribe(self, sound: npt.NDArray[np.float32]) -> str:
        """fp32 16 kHz mono [samples] to text."""
        step = WINDOW_S * SAMPLE_RATE_HZ
        texts = []
        for start in range(0, len(sound), step):
            window = sound[start : start + step]
            made = self._features(window, sampling_rate=SAMPLE_RATE_HZ, return_tensors="pt")
            texts.append(self._whisper.transcribe(made.input_features))
        return " ".join(texts)


def normaliser() -> Callable[[str], str]:
    """The Whisper authors' rules for English: numbers, contractions, case, punctuation alike."""
    from transformers.models.whisper.english_normalizer import EnglishTextNormalizer

    made = EnglishTextNormalizer({})  # type: ignore[no-untyped-call]
    return lambda text: str(made(text))
