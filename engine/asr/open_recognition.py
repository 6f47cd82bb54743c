"""One open utterance of the recogniser, and what is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from headstart.engine.asr.decoding import Decoded, Memory
from headstart.engine.asr.hypothesis import Agreement, Word
from headstart.engine.asr.languages import Language
from headstart.engine.asr.mel import SAMPLE_RATE_HZ, MelState
from headstart.engine.asr.pauses import PauseFinder
from headstart.engine.asr.recording import Recording
from headstart.engine.asr.shown import Shown
from headstart.engine.asr.tokens import WhisperTokens
from headstart.engine.asr.whisper.caches import CrossCache, Frozen


@dataclass(frozen=True)
class Recognized:
    """What is known of an utterance after a chunk, or after its final pass.

    `committed` ends with a whole word and only grows until a final pass, or one over a part of the
    utterance that a pause ended: either may have other words. `tentative` follows on it, with its
    leading space, and may change, though it leaves out what most likely will. `stages_ms`: wall
    time of mel, encode, decode. `audio_tokens`: 20 ms positions of the whole utterance;
    `window_positions`: of those, in the window, with the silence behind; `encoded_positions`: of
    these, encoded this time. `likely`: as in `engine.api.Hearing`.
    """

    committed: str
    tentative: str
    stages_ms: dict[str, float]
    audio_tokens: int
    window_positions: int
    encoded_positions: int
    likely: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        return self.committed + self.tentative


@dataclass
class OpenRecognition:
    """One open utterance. `settled`: words whose sound was dropped from the window. `frozen`,
    `sound` (of the frozen positions) and `memory` spare the work on what has been heard.
    `language_sure`: whether words in `language` may be shown.
    `shown`: what is shown of the newest hypotheses; `recording`: the sound for the final pass; it
    begins where `pauses` parted the utterance last; `part_ends`: the samples at which it parted the
    utterance since, of which nothing is heard for good yet; `final`: its words, if no sound came
    since."""

    mel: MelState
    memory: Memory
    language: Language
    language_sure: bool = True
    frozen: Frozen = field(default_factory=Frozen)
    sound: CrossCache | None = None
    agreement: Agreement = field(default_factory=Agreement)
    shown: Shown = field(default_factory=Shown)
    settled: tuple[Word, ...] = ()
    recording: Recording = field(default_factory=Recording)
    pauses: PauseFinder = field(default_factory=PauseFinder)
    part_ends: list[int] = field(default_factory=list)
    final: tuple[Word, ...] | None = None

    @property
    def committed(self) -> tuple[Word, ...]:
        return self.settled + self.agreement.committed

    @property
    def window_frames(self) -> int:
        return len(self.mel.frames)

    @property
    def at_ms(self) -> float:
        return self.mel.samples * 1000 / SAMPLE_RATE_HZ


def words_of(decoded: Decoded, tokens: WhisperTokens, language: Language) -> tuple[Word, ...]:
    """What was decoded, as words, each as likely as its worst token."""
    words = []
    start = 0
    for group in tokens.words(decoded.tokens, language):
        logprobs = decoded.logprobs[start : start + len(group)]
        pairs = zip(group, logprobs, strict=True)
        letters = [p for token, p in pairs if tokens.spells(token)] or logprobs
        words.append(Word(tokens.text(group), group, min(logprobs), min(letters)))
        start += len(group)
    return tuple(words)
