"""Languages of speech: what differs for the recogniser, and which one a sound is in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from headstart.engine.asr.runaway import RateSettings
from headstart.engine.asr.whisper.caches import CrossCache, Text
from headstart.engine.asr.whisper.decoder import WhisperDecoder

ENGLISH_CODE = "en"
AUTO = "auto"
"""In place of a language's code: the one that each utterance sounds like."""

DETECT_MS = 4000.0
"""From when on a language, once found, stays: shorter sounds are often taken for another one."""

DETECT_FROM_MS = 1000.0
SURE_PROBABILITY = 0.8
"""Sooner than `DETECT_MS` a language is believed from 1 s on where it is at least as likely."""

# Written without spaces: a word ends wherever a character does.
_UNSPACED = frozenset(("bo", "ja", "km", "lo", "my", "th", "yue", "zh"))

# The vocabulary was learnt on mostly English text. One sentence, translated: 1.0 to 1.3 times as
# many tokens in German, Spanish, Russian or Korean, 2.3 in Greek, over 4 in Hindi and Tamil.
_OTHER_RATE = RateSettings(tokens_per_second=40.0)
_ENGLISH_RATE = RateSettings()


@dataclass(frozen=True)
class Language:
    """`code`: Whisper's, mostly ISO 639-1; `token`: its id, None in an English-only model."""

    code: str
    token: int | None = None

    @property
    def is_english(self) -> bool:
        return self.code == ENGLISH_CODE

    @property
    def has_spaces(self) -> bool:
        return self.code not in _UNSPACED

    @property
    def rate(self) -> RateSettings:
        """How many tokens a person can speak in a time."""
        return _ENGLISH_RATE if self.is_english else _OTHER_RATE


class LanguageDetector:
    """Asks the decoder, as it was trained to be asked: which token follows the start."""

    def __init__(self, decoder: WhisperDecoder, start: int, languages: Sequence[Language]) -> None:
        """`start`: id of the start token; `languages`: at least one, each with its token."""
        self._decoder = decoder
        self._start = start
        self._languages = tuple(languages)
        self._tokens = torch.tensor([language.token for language in languages])

    def detect(self, sounds: Sequence[CrossCache]) -> list[tuple[Language, float]]:
        """The likeliest language of each sound, and how likely it is among the languages."""
        texts = [
            Text(torch.tensor([self._start]), self._decoder.text_cache(), sound) for sound in sounds
        ]
        logits = self._decoder.vocabulary.logits(torch.cat(self._decoder.read(texts)))
        best = logits[:, self._tokens].float().softmax(dim=-1).max(dim=-1)
        found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return [(self._languages[place], probability) for place, probability in found]
