"""Transcripts for models that take sound directly.

A small Whisper runs beside the model's audio encoder. Its words are shown to people and never read
by the model. For a model without audio input, the Whisper is the recogniser.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from headstart.engine.api import Image
from headstart.engine.asr.chosen import candidates
from headstart.engine.asr.named import AUTO, find_recognizer
from headstart.engine.interfaces import (
    EmbeddedRecognition,
    LiveFrameEncoder,
    Pcm,
    Recognition,
    SpeechRecognizer,
)
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.weights import Progress, WeightsMissing, locate

log = logging.getLogger("headstart.engine")

TRANSCRIBER = "whisper-tiny.en"


def find_transcriber(
    setting: str, ears: str | None, language: str, progress: Progress
) -> tuple[Path, ...]:
    """The Whisper for the settings `transcribe` and `ears`: empty for none, several, best first,
    if `ears` is "auto". `setting` "on" fetches it if necessary, "auto" uses it if it is there.

    Raises `NoSuchRecognizer`, or `FetchFailed`.
    """
    if setting == "off":
        return ()
    if ears == AUTO:
        return candidates(find_recognizer(TRANSCRIBER, progress), language)
    if ears is not None or setting == "on":
        return (find_recognizer(ears or TRANSCRIBER, progress),)
    try:
        return (locate(TRANSCRIBER),)
    except WeightsMissing:
        log.info("transcripts: none, as %s is not fetched", TRANSCRIBER)
        return ()


class SoundRecognizer(Protocol):
    """A recogniser that gives no words, such as
    `headstart.engine.models.perception.senses.ModelRecognizer`."""

    def open(self, stream: Stream) -> LiveFrameEncoder: ...
    def recognize_batch(
        self, utterances: Sequence[Any], pcms: Sequence[Pcm]
    ) -> Sequence[EmbeddedRecognition]: ...
    def finish(self, utterance: Any, pcm: Pcm | None = None) -> EmbeddedRecognition: ...


@dataclass(slots=True)
class Captioned:
    """An utterance in both recognisers (`headstart.engine.interfaces.LiveFrameEncoder`)."""

    listening: LiveFrameEncoder
    words: Any

    def add_frame(self, image: Image, time_s: float) -> None:
        self.listening.add_frame(image, time_s)

    def token_ids(self) -> Collection[int]:
        return self.listening.token_ids()


class CaptionedRecognizer:
    """A model's `engine.interfaces.SpeechRecognizer`, with words from a Whisper."""

    def __init__(self, recognizer: SoundRecognizer, words: SpeechRecognizer) -> None:
        self._recognizer, self._words = recognizer, words

    def open(self, stream: Stream) -> Captioned:
        """Raises `UnsupportedInput` if the model cannot hear."""
        return Captioned(self._recognizer.open(stream), self._words.open(stream))

    def recognize_batch(
        self, utterances: Sequence[Captioned], pcms: Sequence[Pcm]
    ) -> list[EmbeddedRecognition]:
        heard = self._recognizer.recognize_batch([u.listening for u in utterances], pcms)
        words = self._words.recognize_batch([u.words for u in utterances], pcms)
        return [_captioned(h, w) for h, w in zip(heard, words, strict=True)]

    def finish(self, utterance: Captioned, pcm: Pcm | None = None) -> EmbeddedRecognition:
        heard = self._recognizer.finish(utterance.listening, pcm)
        return _captioned(heard, self._words.finish(utterance.words, pcm))


def _captioned(heard: EmbeddedRecognition, words: Recognition) -> EmbeddedRecognition:
    return replace(
        heard,
        transcribed=True,
        committed=words.committed,
        tentative=words.tentative,
        stages_ms=_sum(heard.stages_ms, words.stages_ms),
    )


def _sum(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    stages = (*first, *(stage for stage in second if stage not in first))
    return {stage: first.get(stage, 0.0) + second.get(stage, 0.0) for stage in stages}
