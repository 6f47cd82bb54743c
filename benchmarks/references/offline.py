"""What streaming recognition is compared with: the same Whisper offline; and how texts compare."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.engine.asr.languages import ENGLISH_CODE
from headstart.engine.asr.mel import SAMPLE_RATE_HZ

WINDOW_S = 30


class Offline:
    """`transformers`: greedy, by windows of 30 s that are padded to 30 s."""

    def __init__(self, directory: Path, language: str) -> None:
        from transformers import WhisperFeatureExtractor

        from headstart.benchmarks.references.offline_whisper import whisper_of

        self._whisper = whisper_of(directory, language)
        extractor: Any = WhisperFeatureExtractor
        self._features = extractor(feature_size=self._whisper.mels)

    def transcribe(self, sound: npt.NDArray[np.float32]) -> str:
        """fp32 16 kHz mono [samples] to text."""
        step = WINDOW_S * SAMPLE_RATE_HZ
        texts = []
        for start in range(0, len(sound), step):
            window = sound[start : start + step]
            made = self._features(window, sampling_rate=SAMPLE_RATE_HZ, return_tensors="pt")
            texts.append(self._whisper.transcribe(made.input_features))
        return " ".join(texts)


def normaliser(language: str = ENGLISH_CODE) -> Callable[[str], str]:
    """The Whisper authors' rules: for English numbers, contractions, case and punctuation alike,
    for others case, punctuation and accents, which lists of prompts often leave out."""
    from transformers.models.whisper import english_normalizer as rules

    if language == ENGLISH_CODE:
        made: Any = rules.EnglishTextNormalizer({})  # type: ignore[no-untyped-call]
    else:
        made = rules.BasicTextNormalizer(remove_diacritics=True)
    return lambda text: str(made(text))
