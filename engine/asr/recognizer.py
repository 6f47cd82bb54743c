"""Streaming speech recognition: chunks of an open utterance in, settled and guessed words out.

Each chunk: its mel frames are added, the end of the open window is encoded anew (Whisper looks both
ways) with silence behind it up to 30 s (`silence`), and decoded with the committed words forced.
What stood long enough is committed (`hypothesis`), what will likely stay is shown (`shown`). Sound
further back than `look_ahead_s` is frozen: its keys and values stay, in the encoder and in the
decoder's attention to it. After some seconds of unbroken speech the window slides: sound whose
words are committed is dropped, and its words stay as the decoder's prompt. So a chunk's cost is
bounded, however long somebody speaks.

    |<- settled: text only ->|<- window: sound held, at most `slide_at_s` and a chunk ------->|
    |  prompt of the decoder |  committed words, forced  |  tentative words, decoded  | silence |
    |                        |  frozen                   |  encoded anew with each chunk        |

Chunks of several utterances go through the matrices together (`recognize_batch`), and what comes
out is what each would give alone: a row's result depends on that row's sound only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from headstart.engine.asr import persist
from headstart.engine.asr.adopt import adopted
from headstart.engine.asr.decoding import Decoded, Ending, GreedyDecoder, Job, Task
from headstart.engine.asr.errors import BadAudio
from headstart.engine.asr.final_pass import (
    ENCODER_LIMIT_S,
    TAIL_FRAMES,
    FinalPass,
    FinalSettings,
)
from headstart.engine.asr.hypothesis import (
    Agreement,
    AgreementSettings,
    Hypothesis,
    Word,
    likely,
    text_of,
    tokens_of,
)
from headstart.engine.asr.languages import (
    AUTO,
    DETECT_FROM_MS,
    DETECT_MS,
    ENGLISH_CODE,
    SURE_PROBABILITY,
    LanguageDetector,
)
from headstart.engine.asr.mel import FRAMES_PER_SECOND, HOP_SAMPLES, SAMPLE_RATE_HZ, LogMel
from headstart.engine.asr.open_recognition import OpenRecognition, Recognized, words_of
from headstart.engine.asr.pauses import PauseFinder, PauseSettings
from headstart.engine.asr.recording import LONGEST_S, Pcm
from headstart.engine.asr.runaway import token_limit
from headstart.engine.asr.shown import Shown, ShowSettings
from headstart.engine.asr.silence import FarSilence
from headstart.engine.asr.stage_clock import StageClock
from headstart.engine.asr.tokens import WhisperTokens
from headstart.engine.asr.whisper.caches import CrossCache, EncodedSound, Frozen
from headstart.engine.asr.whisper.checkpoint import TOKENIZER_FILE, Checkpoint, load_checkpoint
from headstart.engine.asr.whisper.encoder import POSITIONS_PER_SECOND
from headstart.engine.asr.whisper.pieces import Pieces, drain, within
from headstart.engine.asr.whisper.prepared import Prepared
from headstart.engine.asr.window_cut import Cut, find_cut, onsets_s
from headstart.engine.errors import BadSettings
from headstart.kernels.errors import KernelMemoryError

_SAMPLES_PER_POSITION = SAMPLE_RATE_HZ // POSITIONS_PER_SECOND


@dataclass(frozen=True)
class RecognizerSettings:
    """How sound is recognised; all times are of sound, not of the wall.

    `pad_s`: silence encoded behind the sound; of what is farther, up to 30 s, one position in
    `silence_step` is attended to (`FarSilence`); `look_ahead_s`: sound this far back is frozen;
    `least_s`: sound shorter than this is not decoded; `step_s`: longer chunks are heard in steps of
    this; `slide_at_s`: the window slides when it is longer, and at `slide_by_force_s` even where no
    good place for the cut is found, or sooner when its text has as many tokens as `slide_at_tokens`
    and `slide_by_force_tokens`: the decoder's positions are few, and outside English soon used up;
    `keep_s`: sound always kept; `prompt_tokens`: of what was said before; `style`: what was "said"
    in English before the first word, for a decoder that has only heard a beginning and would go on
    without capitals and full stops; sound shorter than `style_from_s` does without, for a single
    word is heard worse behind it. A first hypothesis with more
    `no_speech` and less `mean_logprob` than these is no speech.
    """

    pad_s: float = 1.0
    silence_step: int = 4
    look_ahead_s: float = 1.5
    least_s: float = 0.3
    step_s: float = 2.0
    slide_at_s: float = 12.0
    slide_by_force_s: float = 18.0
    slide_at_tokens: int = 160
    slide_by_force_tokens: int = 240
    keep_s: float = 3.0
    prompt_tokens: int = 60
    style: str = " Hello. How are you? I am fine, thank you."
    style_from_s: float = 2.5
    no_speech: float = 0.6
    mean_logprob: float = -0.5
    agreement: AgreementSettings = field(default_factory=AgreementSettings)
    show: ShowSettings = field(default_factory=ShowSettings)
    final: FinalSettings = field(default_factory=FinalSettings)
    pauses: PauseSettings = field(default_factory=PauseSettings)

    def __post_init__(self) -> None:
        """Raises `BadSettings` when a window could outgrow the encoder."""
        longest_s = self.slide_by_force_s + self.step_s + self.pad_s
        if longest_s > ENCODER_LIMIT_S:
            expected = f"at most {ENCODER_LIMIT_S} together with step_s and pad_s"
            raise BadSettings("slide_by_force_s", expected, longest_s)
        if not self.keep_s < self.slide_at_s <= self.slide_by_force_s:
            between = f"above keep_s {self.keep_s}, at most {self.slide_by_force_s}"
            raise BadSettings("slide_at_s", between, self.slide_at_s)


class WhisperRecognizer:
    """One loaded Whisper; any number of utterances, each its own state."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        tokens: WhisperTokens,
        settings: RecognizerSettings | None = None,
        language: str = ENGLISH_CODE,
    ) -> None:
        """`language`: a code, or `AUTO`. Raises `UnknownLanguage`, `EnglishOnly`."""
        self.settings = settings or RecognizerSettings()
        self._encoder = checkpoint.encoder
        self._decoder = checkpoint.decoder
        self._tokens = tokens
        self._greedy = GreedyDecoder(checkpoint.decoder, tokens, checkpoint.extras)
        self._mel = LogMel(checkpoint.settings.mels)
        self._style = tokens.encode(self.settings.style) if self.settings.style else ()
        self._detector = None
        if language == AUTO and tokens.languages:
            start = tokens.specials.start
            self._detector = LanguageDetector(checkpoint.decoder, start, tokens.languages)
        self._agreement = self.settings.agreement
        if self._detector is not None:  # no word is sure before its language is
            first_ms = max(self._agreement.first_ms, DETECT_MS)
            self._agreement = replace(self._agreement, first_ms=first_ms)
        self._working = checkpoint.working
        with self._working():
            silence = FarSilence(
                checkpoint.encoder, checkpoint.decoder, prepared=checkpoint.prepared
            )
        self._silence = silence.thinned(self.settings.silence_step)
        self._final = FinalPass(
            checkpoint,
            tokens,
            self._mel,
            self._greedy,
            silence,
            self.settings.final,
            self._detector,
        )
        # What an utterance begins with: it is asked for before the first decoding.
        self._language = tokens.language(ENGLISH_CODE if language == AUTO else language)
        self.is_on_gpu = checkpoint.decoder.positions.is_cuda
        sizes, known = checkpoint.settings, len(tokens.languages)
        self.about = (
            f"{sizes.encoder_layers} + {sizes.decoder_layers} layers of {sizes.width}, "
            f"{f'{known} languages' if known else 'English only'}"
        )

    @classmethod
    def load(
        cls,
        directory: Path,
        settings: RecognizerSettings | None = None,
        language: str = ENGLISH_CODE,
        prepared: Prepared | None = None,
    ) -> WhisperRecognizer:
        """Load a Whisper directory; `prepared`: where what is made of it comes from. Raises
        `BadWeights`, and as the constructor."""
        checkpoint = load_checkpoint(directory, prepared=prepared)
        return cls.over(checkpoint, directory, settings, language)

    @classmethod
    def over(
        cls,
        checkpoint: Checkpoint,
        directory: Path,
        settings: RecognizerSettings | None = None,
        language: str = ENGLISH_CODE,
    ) -> WhisperRecognizer:
        """As `load`, where the checkpoint of `directory` is loaded already."""
        extras = checkpoint.extras
        tokens = WhisperTokens(directory / TOKENIZER_FILE, extras.multilingual)
        tokens.check(checkpoint.settings.vocabulary, extras.ids)
        return cls(checkpoint, tokens, settings, language)

    def open(self, stream: object = None) -> OpenRecognition:
        """A new utterance, before its first sample. Whose words it will be does not matter."""
        named = self._detector is None
        pauses = PauseFinder(self.settings.pauses)
        mel, memory = self._mel.open(), self._greedy.memory()
        return OpenRecognition(mel, memory, self._language, named, pauses=pauses)

    def recognize(self, utterance: OpenRecognition, pcm: npt.NDArray[np.float32]) -> Recognized:
        """Take in a chunk, fp32 [samples] of 16 kHz mono. Raises `BadAudio` first."""
        return self.recognize_batch([utterance], [pcm])[0]

    def recognize_batch(
        self, utterances: Sequence[OpenRecognition], pcms: Sequence[npt.NDArray[np.float32]]
    ) -> list[Recognized]:
        """A chunk each of several utterances. Raises `BadAudio` before anything was taken in, and
        `DeviceFull` or `KernelFailed`: then the next chunk, or the final pass, hears these too."""
        return drain(self.recognize_in_pieces(utterances, pcms))

    def recognize_in_pieces(
        self, utterances: Sequence[OpenRecognition], pcms: Sequence[npt.NDArray[np.float32]]
    ) -> Pieces[list[Recognized]]:
        """`recognize_batch` in pieces, none of which takes longer than a chunk's encoding; other
        utterances may be heard between them. What it raises comes from the piece it is met in."""
        return within(self._working, self._recognize(utterances, pcms))

    @torch.inference_mode()
    def _recognize(
        self, utterances: Sequence[OpenRecognition], pcms: Sequence[Pcm]
    ) -> Pieces[list[Recognized]]:
        sounds, clock = [_checked(pcm) for pcm in pcms], StageClock()
        yield from self._take_in_all(utterances, sounds, clock)
        return [self._heard(u, u.committed, u.shown.words, clock) for u in utterances]

    def _take_in_all(
        self,
        utterances: Sequence[OpenRecognition],
        sounds: Sequence[Pcm],
        clock: StageClock,
        *,
        final_follows: bool = False,
    ) -> Pieces[None]:
        """Take `sounds` in, `step_s` after `step_s`, each with a pass over the windows. Before a
        final pass the last one has none, unless its window is long enough to slide. All sound is
        taken in, also where there is no memory for a pass; parts that ended meanwhile are heard for
        good with the next one."""
        step = int(self.settings.step_s * SAMPLE_RATE_HZ)
        least, slide_at = (
            seconds * FRAMES_PER_SECOND
            for seconds in (self.settings.least_s, self.settings.slide_at_s)
        )
        longest, taken = max(map(len, sounds), default=0), [0] * len(sounds)
        try:
            for start in range(0, longest, step):
                grown = []
                for i, (utterance, sound) in enumerate(zip(utterances, sounds, strict=True)):
                    piece = sound[start : start + step]
                    if not len(piece):
                        continue
                    taken[i] += len(piece)
                    self._take_in(utterance, piece, clock)
                    yield from self._parts(utterance, clock)
                    frames, is_last = utterance.window_frames, taken[i] == len(sound)
                    if frames > slide_at if final_follows and is_last else frames >= least:
                        grown.append(utterance)
                if grown:
                    yield from self._update(grown, clock)
                    if final_follows or start + step < longest:
                        yield
        except (torch.OutOfMemoryError, KernelMemoryError):
            for utterance, sound, count in zip(utterances, sounds, taken, strict=True):
                if count < len(sound):
                    self._take_in(utterance, sound[count:], clock)
            raise

    def _take_in(self, utterance: OpenRecognition, piece: Pcm, clock: StageClock) -> None:
        """Add sound, to be heard with the next pass, and note where parts of the utterance turn out
        to end."""
        _go_on(utterance)
        utterance.recording.push(piece)
        with clock.stage("mel"):
            self._mel.push(utterance.mel, torch.from_numpy(piece))
        utterance.part_ends += utterance.pauses.push(piece)

    def finish(
        self, utterance: OpenRecognition, pcm: npt.NDArray[np.float32] | None = None
    ) -> Recognized:
        """The final words so far, nothing tentative: those of the sound heard as a whole, whatever
        was said of it before (`engine.asr.final_pass`). `pcm`: sound that comes with the end; its
        last `step_s` are heard in the final pass alone, unless the window is long enough to slide.

        The utterance stays open: `recognize` goes on, with the words that were committed and that
        the final pass has as well. Raises as `recognize_batch`.
        """
        return drain(self.finish_in_pieces(utterance, pcm))

    def finish_in_pieces(
        self, utterance: OpenRecognition, pcm: npt.NDArray[np.float32] | None = None
    ) -> Pieces[Recognized]:
        """`finish`, as `recognize_in_pieces`."""
        return within(self._working, self._finish(utterance, pcm))

    @torch.inference_mode()
    def _finish(self, utterance: OpenRecognition, pcm: Pcm | None) -> Pieces[Recognized]:
        clock = StageClock()
        if pcm is not None:
            yield from self._take_in_all([utterance], [_checked(pcm)], clock, final_follows=True)
        yield from self._parts(utterance, clock)
        if utterance.final is None:
            utterance.final = yield from self._recognize_again(utterance, clock)
        return self._heard(utterance, utterance.final, (), clock)

    def _parts(self, utterance: OpenRecognition, clock: StageClock) -> Pieces[None]:
        """Hear for good what was said before each of `part_ends`; the window begins at the last.
        One that fails, because a GPU has no room for it, stays to be heard. If it stays for so long
        that some of its sound is gone, its words are those that were known of it."""
        while utterance.part_ends:
            end = utterance.part_ends[0]
            words = (*utterance.committed, *utterance.agreement.tentative)
            if utterance.recording.holds(end):
                words = yield from self._recognize_again(utterance, clock, end)
            del utterance.part_ends[0]
            utterance.shown = utterance.shown.continuing(utterance.committed, words)
            utterance.settled, utterance.agreement = words, Agreement()
            utterance.recording.part(end, len(words))
            frames = end // HOP_SAMPLES - utterance.mel.dropped
            self._drop(utterance, min(max(frames, 0), utterance.window_frames))
            yield

    def _recognize_again(
        self, utterance: OpenRecognition, clock: StageClock, end: int | None = None
    ) -> Pieces[tuple[Word, ...]]:
        """The words of the whole utterance, or up to sample `end`; of one that pauses parted, or of
        a long one, those of its end are new."""
        recording = utterance.recording
        before = utterance.committed[: recording.start.words]
        sound = recording.whole(end)
        if not len(sound):
            return before
        words = (*utterance.committed, *utterance.agreement.tentative)
        decoded, language = yield from self._final.recognize_in_pieces(
            sound,
            utterance.language,
            prompt=tokens_of(before)[-self.settings.prompt_tokens :],
            draft=tokens_of(words[len(before) :]),
            clock=clock,
        )
        utterance.language = language
        if self._final.is_silence(decoded):
            return before
        return (*before, *words_of(decoded, self._tokens, language))

    @torch.inference_mode()
    def align(self, pcm: npt.NDArray[np.float32]) -> list[tuple[str, float]]:
        """The words of a whole sound of up to 28 s, each with the second at which it begins: those
        of its final pass. Raises `BadAudio`.
        """
        longest = LONGEST_S * SAMPLE_RATE_HZ
        if not 0 < len(_checked(pcm)) <= longest:
            raise BadAudio("length", f"1 to {longest} samples", len(pcm))
        language, start = self._language, 0
        words: tuple[Word, ...] = ()
        found: list[tuple[str, float]] = []
        for end in (*PauseFinder(self.settings.pauses).push(pcm), len(pcm)):
            prompt = tokens_of(words)[-self.settings.prompt_tokens :]
            sound = pcm[start:end]
            with self._working():
                decoded, language = self._final.recognize(sound, language, prompt, (), StageClock())
            if not self._final.is_silence(decoded):
                new = words_of(decoded, self._tokens, language)
                starts_s = onsets_s(new, decoded.places_s)
                before_s = start / SAMPLE_RATE_HZ
                found += [
                    (word.text, before_s + start_s)
                    for word, start_s in zip(new, starts_s, strict=False)
                ]
                words += new
            start = end
        return found

    def _update(self, utterances: Sequence[OpenRecognition], clock: StageClock) -> Pieces[None]:
        """A new hypothesis of each window, and what follows from it."""
        for utterance in utterances:
            self._fit(utterance)
        every = yield from self._decode(utterances, clock)
        for utterance, decoded in zip(utterances, every, strict=True):
            self._judge(utterance, decoded)
            seconds = utterance.window_frames / FRAMES_PER_SECOND
            words = utterance.agreement.committed + utterance.agreement.tentative
            rules, tokens = self.settings, len(tokens_of(words))
            if seconds > rules.slide_at_s or tokens > rules.slide_at_tokens:
                force = seconds > rules.slide_by_force_s or tokens > rules.slide_by_force_tokens
                cut = find_cut(
                    utterance.mel.frames,
                    words,
                    decoded.places_s,
                    committed=len(utterance.agreement.committed),
                    keep_s=self.settings.keep_s,
                    force=force,
                )
                if cut is not None:
                    self._slide(utterance, cut)

    def _fit(self, utterance: OpenRecognition) -> None:
        """Make a window that the encoder does not take, because a GPU had no room for passes
        meanwhile, begin `keep_s` before its end. The final pass hears what is given up, as far back
        as it hears anything."""
        longest_s = ENCODER_LIMIT_S - self.settings.pad_s
        if utterance.window_frames + TAIL_FRAMES <= longest_s * FRAMES_PER_SECOND:
            return
        utterance.settled = utterance.committed
        utterance.agreement, utterance.shown = Agreement(), Shown()
        kept = int(self.settings.keep_s * FRAMES_PER_SECOND)
        self._drop(utterance, utterance.window_frames - kept)

    def _slide(self, utterance: OpenRecognition, cut: Cut) -> None:
        """Give up the sound before the cut; its words are settled."""
        agreement = utterance.agreement
        missing = cut.words - len(agreement.committed)
        if missing > 0:  # by force only
            utterance.shown = utterance.shown.behind(agreement.tentative[:missing])
            agreement = agreement.commit(missing)
        utterance.settled += agreement.committed[: cut.words]
        utterance.recording.mark(
            (utterance.mel.dropped + cut.frame) * HOP_SAMPLES, len(utterance.settled)
        )
        utterance.agreement = agreement.drop(cut.words)
        self._drop(utterance, cut.frame)

    def _drop(self, utterance: OpenRecognition, frames: int) -> None:
        """Begin the window `frames` later."""
        self._mel.drop(utterance.mel, frames)
        # Every position is another one now: encode what is left anew.
        utterance.frozen, utterance.sound = Frozen(), None
        utterance.memory = self._greedy.memory()

    def _decode(
        self, utterances: Sequence[OpenRecognition], clock: StageClock
    ) -> Pieces[list[Decoded]]:
        """The words of each window, those that are committed forced; freezes what is old enough."""
        with clock.stage("mel"):
            pad_frames = int(self.settings.pad_s * FRAMES_PER_SECOND)
            features = [self._mel.features(u.mel, pad_frames=pad_frames) for u in utterances]
        with clock.stage("encode"):
            windows = [
                EncodedSound(
                    window,
                    utterance.frozen,
                    self._old_positions(utterance),
                    self._silence.encoded(window.shape[1] // 2),
                )
                for window, utterance in zip(features, utterances, strict=True)
            ]
        encoded = yield from clock.pieces("encode", self._encoder.encode_in_pieces(windows))
        with clock.stage("encode"):
            sounds = self._decoder.listen_many(
                [rows for rows, _ in encoded], [utterance.sound for utterance in utterances]
            )
            for utterance, (_, frozen), sound in zip(utterances, encoded, sounds, strict=True):
                utterance.frozen, utterance.sound = frozen, sound.first(frozen.positions)
        clock.positions = max(sound.positions for sound in sounds)
        clock.encoded = max(len(rows) for rows, _ in encoded)
        yield
        with clock.stage("decode"):
            self._detect(utterances, sounds)
            jobs = [
                Job(self._silence.behind(sound), self._task(utterance), utterance.memory)
                for sound, utterance in zip(sounds, utterances, strict=True)
            ]
            frames = [utterance.mel.frames for utterance in utterances]
            work = persist.decode_in_pieces(self._greedy, jobs, frames)
        return (yield from clock.pieces("decode", work))

    def _detect(self, utterances: Sequence[OpenRecognition], sounds: Sequence[CrossCache]) -> None:
        """The languages of those that have not committed themselves to one by a word. One that is
        believed gives way only to one that can be believed as well."""
        if self._detector is None:
            return
        for utterance in utterances:
            utterance.language_sure |= bool(utterance.committed)
        open_ones = [(u, s) for u, s in zip(utterances, sounds, strict=True) if not u.committed]
        if open_ones:
            found = self._detector.detect([sound for _, sound in open_ones])
            for (utterance, _), (language, probability) in zip(open_ones, found, strict=True):
                at_ms = utterance.at_ms
                sure = at_ms >= DETECT_FROM_MS and probability >= SURE_PROBABILITY
                if sure or not utterance.language_sure:
                    utterance.language = language
                utterance.language_sure |= sure or at_ms >= DETECT_MS

    def _old_positions(self, utterance: OpenRecognition) -> int:
        """How many of the window's positions have all the sound behind them that they need."""
        seconds = utterance.window_frames / FRAMES_PER_SECOND - self.settings.look_ahead_s
        return max(int(seconds * POSITIONS_PER_SECOND), utterance.frozen.positions)

    def _task(self, utterance: OpenRecognition) -> Task:
        seconds = utterance.window_frames / FRAMES_PER_SECOND
        language = utterance.language
        styled = language.is_english and seconds >= self.settings.style_from_s
        style = self._style if styled else ()
        prompt = tokens_of(utterance.settled)[-self.settings.prompt_tokens :] or style
        return Task(
            opening=self._tokens.opening(prompt, language),
            forced=utterance.agreement.committed_tokens,
            draft=tokens_of(utterance.agreement.tentative),
            limit=token_limit(seconds, language.rate),
            # Silence behind the sound is for the encoder; its keys stay, nothing is heard there.
            positions=utterance.window_frames // 2 + 1,
            frozen=utterance.frozen.positions,
            capital=language.is_english,
        )

    def _judge(self, utterance: OpenRecognition, decoded: Decoded) -> None:
        """One more hypothesis, if it can be believed: what is committed and shown now."""
        if decoded.ending is Ending.LIMIT:
            return
        words = words_of(decoded, self._tokens, utterance.language)
        newest = Hypothesis(words, utterance.at_ms)
        before = len(utterance.agreement.committed)
        if not before and self._is_silence(decoded):
            newest = replace(newest, words=())
        agreement = utterance.agreement.update(newest, self._agreement)
        shown = utterance.shown.behind(agreement.committed[before:])
        utterance.agreement = agreement
        if utterance.language_sure:
            utterance.shown = shown.follow(agreement, self.settings.show)

    def _is_silence(self, decoded: Decoded) -> bool:
        unsure = decoded.mean_logprob < self.settings.mean_logprob
        return unsure and decoded.no_speech > self.settings.no_speech

    def _heard(
        self,
        utterance: OpenRecognition,
        sure: tuple[Word, ...],
        shown: tuple[Word, ...],
        clock: StageClock,
    ) -> Recognized:
        committed, tentative = text_of(sure), text_of(shown)
        return Recognized(
            committed=committed.lstrip(),
            tentative=tentative if committed else tentative.lstrip(),
            stages_ms=dict(clock.spent_ms),
            audio_tokens=-(-utterance.mel.samples // _SAMPLES_PER_POSITION),
            window_positions=clock.positions,
            encoded_positions=clock.encoded,
            likely=likely((*sure, *shown)),
        )


def _go_on(utterance: OpenRecognition) -> None:
    """More sound comes: if there was a final pass, what it withdrew is not committed any more."""
    final, utterance.final = utterance.final, None
    if final is None:
        return
    marks = utterance.recording.marks
    known = marks[0].words  # was not heard again
    counts = (len(utterance.settled), *(mark.words for mark in marks))
    words, (settled, *moved) = adopted(
        utterance.committed[known:], final[known:], [count - known for count in counts]
    )
    words = (*final[:known], *words)
    settled, moved = settled + known, [count + known for count in moved]
    utterance.settled = words[:settled]
    marks[:] = [replace(mark, words=count) for mark, count in zip(marks, moved, strict=True)]
    rest = Hypothesis(final[len(words) :], utterance.at_ms)
    utterance.agreement = Agreement(words[settled:], (rest,))
    utterance.shown = Shown(rest.words)


def _checked(pcm: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    if pcm.ndim != 1:
        raise BadAudio("shape", "one axis of samples", list(pcm.shape))
    if pcm.dtype != np.float32:
        raise BadAudio("type", "float32", pcm.dtype)
    if not np.isfinite(pcm).all():
        raise BadAudio("samples", "finite numbers", "NaN or infinity")
    return pcm
