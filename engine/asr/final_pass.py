"""The final pass: an utterance heard as a whole, as if nothing had been heard of it before.

What was said while it grew is only a draft here, which makes the decoding quick and changes nothing
of it. So the final words depend on the sound alone, not on how it was cut into chunks, and are what
the same Whisper offline would say: silence behind the sound, as it was trained; no words put into
its mouth before; the end only where it says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headstart.engine.asr import persist
from headstart.engine.asr.decoding import Decoded, Ending, GreedyDecoder, Job, Task
from headstart.engine.asr.languages import Language, LanguageDetector
from headstart.engine.asr.mel import FRAMES_PER_SECOND, SAMPLE_RATE_HZ, LogMel, MelState
from headstart.engine.asr.recording import Pcm
from headstart.engine.asr.runaway import token_limit
from headstart.engine.asr.silence import FarSilence
from headstart.engine.asr.stage_clock import StageClock
from headstart.engine.asr.tokens import WhisperTokens
from headstart.engine.asr.whisper.caches import CrossCache, EncodedSound
from headstart.engine.asr.whisper.pieces import Pieces, drain

if TYPE_CHECKING:
    from headstart.engine.asr.whisper.checkpoint import Checkpoint

# What is behind the last whole frame of a sound, and a silent frame to make the number even.
TAIL_FRAMES = 4
# What Whisper hears at most, and was trained on.
ENCODER_LIMIT_S = 30.0


@dataclass(frozen=True)
class FinalSettings:
    """`near_s`: silence behind the sound that is encoded with it; what is farther, up to 30 s, is
    known beforehand (`FarSilence`). Words with more `no_speech` and less `mean_logprob` than these
    are none."""

    near_s: float = 2.0
    no_speech: float = 0.6
    mean_logprob: float = -0.5


class FinalPass:
    """Hears whole sounds with one Whisper; keeps no state between calls."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        tokens: WhisperTokens,
        mel: LogMel,
        greedy: GreedyDecoder,
        silence: FarSilence,
        settings: FinalSettings,
        detector: LanguageDetector | None,
    ) -> None:
        self._encoder, self._decoder = checkpoint.encoder, checkpoint.decoder
        self._tokens, self._mel, self._greedy = tokens, mel, greedy
        self._settings, self._detector = settings, detector
        self._silence = silence

    def recognize(
        self,
        pcm: Pcm,
        language: Language,
        prompt: tuple[int, ...],
        draft: tuple[int, ...],
        clock: StageClock,
    ) -> tuple[Decoded, Language]:
        """`recognize_in_pieces` at once."""
        return drain(self.recognize_in_pieces(pcm, language, prompt, draft, clock))

    def recognize_in_pieces(
        self,
        pcm: Pcm,
        language: Language,
        prompt: tuple[int, ...],
        draft: tuple[int, ...],
        clock: StageClock,
    ) -> Pieces[tuple[Decoded, Language]]:
        """The words of fp32 [samples], at least one and at most 28 s, and the language they are in:
        `language`, or what it sounds like where that is asked for.

        `prompt`: tokens of what was said before this sound; `draft`: what it likely says.
        """
        seconds = len(pcm) / SAMPLE_RATE_HZ
        with clock.stage("mel"):
            state = self._mel.open()
            features = self._features(state, pcm)
        yield
        sound, encoded = yield from clock.pieces("encode", self._hear(features))
        clock.positions, clock.encoded = sound.positions, encoded
        yield
        if self._detector is not None and not prompt:
            with clock.stage("decode"):
                ((language, _),) = self._detector.detect([sound])
            yield

        def decode(prompt: tuple[int, ...]) -> Pieces[Decoded]:
            work = self._decode(sound, seconds, language, prompt, draft)
            return clock.pieces("decode", work)

        decoded = yield from decode(prompt)
        if prompt and self._stops_short(decoded, state):
            yield
            alone = yield from decode(())
            if alone.ending is Ending.END and len(alone.tokens) > len(decoded.tokens):
                decoded = alone
        return decoded, language

    def _hear(self, features: Tensor) -> Pieces[tuple[CrossCache, int]]:
        """What the decoder attends to, and how many positions were encoded."""
        beyond = self._silence.encoded(features.shape[1] // 2)
        encoding = self._encoder.encode_in_pieces([EncodedSound(features, beyond=beyond)])
        ((rows, _),) = yield from encoding
        yield
        return self._silence.behind(self._decoder.listen(rows)), len(rows)

    def _stops_short(self, decoded: Decoded, state: MelState) -> bool:
        """Whether speech was left out: behind text like it the decoder may fall silent."""
        said_nothing = not decoded.tokens or self.is_silence(decoded)
        return said_nothing or persist.ends_early(decoded, state.frames)

    def _features(self, state: MelState, pcm: Pcm) -> Tensor:
        """[mels, T] of the sound, whose frames `state` takes, and the silence behind it."""
        self._mel.push(state, torch.from_numpy(pcm))
        room = int(ENCODER_LIMIT_S * FRAMES_PER_SECOND) - len(state.frames) - TAIL_FRAMES
        pad_frames = min(int(self._settings.near_s * FRAMES_PER_SECOND), room)
        return self._mel.features(state, pad_frames=pad_frames)

    def _decode(
        self,
        sound: CrossCache,
        seconds: float,
        language: Language,
        prompt: tuple[int, ...],
        draft: tuple[int, ...],
    ) -> Pieces[Decoded]:
        task = Task(
            opening=self._tokens.opening(prompt, language),
            forced=(),
            draft=draft,
            limit=token_limit(seconds, language.rate),
            positions=int(seconds * 50) + 1,
            capital=language.is_english,
            patient=True,
        )
        jobs = [Job(sound, task, self._greedy.memory())]
        (decoded,) = yield from self._greedy.decode_in_pieces(jobs)
        return decoded

    def is_silence(self, decoded: Decoded) -> bool:
        """Whether the model itself does not believe in its words."""
        unsure = decoded.mean_logprob < self._settings.mean_logprob
        return unsure and decoded.no_speech > self._settings.no_speech
