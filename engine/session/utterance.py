"""The open utterance: the speech in progress, as far as it has been recognised.

`Utterance` holds one turn's words and camera views so far, `AudioBatch` the audio of it that one
pass of the recogniser takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Any

import numpy as np

from headstart.engine import api
from headstart.engine.api import Audio, Clip, Hearing, Image, Role, TurnRef
from headstart.engine.chat.context_window import Range, RemovedRanges, remove_ranges
from headstart.engine.chat.render import Entry, Modality, Segment
from headstart.engine.interfaces import (
    EmbeddedRecognition,
    Pcm,
    Recognition,
    Tokenizer,
    TokenRuns,
    View,
)
from headstart.engine.session.chunk_trace import ChunkTrace, budget_stages
from headstart.engine.session.command_queue import chunk_due_ns
from headstart.engine.session.spelling import bare, keep_spelling, place_in

_INT16_SCALE = 1.0 / 32768.0


def to_float(audio: Audio | Clip) -> Pcm:
    """s16le bytes as float32 [samples] in [-1, 1)."""
    return np.frombuffer(audio.pcm, dtype="<i2").astype(np.float32) * _INT16_SCALE


@dataclass(slots=True)
class Utterance:
    """Words and camera views of one turn.

    Committed text only grows, except where speech is heard again: a final pass may shorten it to
    the part it confirms, and a part that a pause ended may come out in other words. Each of `views`
    has an offset in the committed text, at a word boundary. The offset stays valid while words are
    added; words that are heard again move it with the words around it.

    The language model reads the words of `text` in the spelling in which it read them first
    (`engine.session.spelling`): no comma and no capital rolls back what was read behind it.
    """

    ref: TurnRef
    item_id: str
    state: Any  # the recogniser's, opaque here
    start_sample: int
    committed: str = ""
    tentative: str = ""
    read: str = ""  # `committed + tentative` as the language model reads it
    likely: tuple[float, ...] = ()
    samples: int = 0
    finished: bool = False  # the final pass was made for this revision
    parts: TokenRuns | None = None  # the utterance as tokens, if the recogniser gives embeddings
    sure_parts: TokenRuns | None = None  # the part of them that will not change
    transcribed: bool = True  # whether `text` is a transcript of the speech
    views: list[tuple[int, View]] = field(default_factory=list)
    heard: list[Pcm | Image] | None = None  # sound and frames so far, if it may be a continuation
    continued: bool = False  # whether it has gone on after an end
    removed: tuple[Entry, Entry] | None = None  # the item it continues, and what holds its place
    _evicted: RemovedRanges = field(default_factory=RemovedRanges)  # evicted ranges of its tokens
    _evicted_tokens: Counter[int] = field(default_factory=Counter)  # the evicted tokens

    @property
    def text(self) -> str:
        return (self.committed + self.tentative).strip()

    @property
    def says_something(self) -> bool:
        """Whether there is anything to answer."""
        sound = any(m is Modality.AUDIO and ids for m, ids in self.parts or ())
        return bool(self.text) or sound

    def take(self, words: Recognition, samples: int) -> None:
        """Update with the result after `samples` more samples."""
        if not words.committed.startswith(self.committed):
            self.views = [
                (_moved(at, self.committed, words.committed), view) for at, view in self.views
            ]
        self.committed, self.tentative = words.committed, words.tentative
        self.read = keep_spelling(self.read, self.committed + self.tentative)
        self.views = [(min(at, len(self.committed)), view) for at, view in self.views]
        self.likely = words.likely
        self._take_parts(words)
        self.samples += samples
        self.finished = False

    def finish(self, words: Recognition, samples: int = 0) -> None:
        """Update with the result of the final pass over the whole utterance, after `samples` more
        samples.

        Words behind the committed ones, and from the first that differs, stay tentative until the
        endpoint, because speech may resume.
        """
        final = words.committed + words.tentative
        self.views = [(_moved(at, self.committed, final), view) for at, view in self.views]
        self.committed = _common_words(self.committed, final)
        self.tentative = final[len(self.committed) :]
        self.read = keep_spelling(self.read, final)
        self.likely = words.likely
        self._take_parts(words)
        self.samples += samples
        self.finished = True

    def _take_parts(self, words: Recognition) -> None:
        if isinstance(words, EmbeddedRecognition):
            self.parts, self.sure_parts = words.parts, words.sure_parts
            self.transcribed = words.transcribed

    def continue_as(self, following: Utterance) -> None:
        """Become `following`, whose sound is yet to be recognised here: speech went on after all.
        As after a hush, the words of the final pass stay tentative."""
        self.ref, self.item_id = following.ref, following.item_id
        self.start_sample = following.start_sample - self.samples  # without the gap
        self.finished, self.continued = False, True
        self.views += [(len(self.committed), view) for _, view in following.views]

    def add_view(self, view: View) -> None:
        """Add a camera view behind the committed words."""
        self.views.append((len(self.committed), view))

    def insert_view(self, view: View, place: tuple[int, ...] | None) -> None:
        """Add a view behind the one whose tokens are `place`; None, or not one of these: first."""
        held = [shown.ids is place for _, shown in self.views]
        behind = held.index(True) + 1 if any(held) else 0
        offset = self.views[behind - 1][0] if behind else 0
        self.views.insert(behind, (offset, view))

    def hearing(self, session: str) -> Hearing:
        """The event with the words so far."""
        return Hearing(
            session=session,
            ref=self.ref,
            committed=self.committed,
            tentative=self.tentative,
            at_sample=self.start_sample + self.samples,
            final=self.finished,
            wordless=self.parts is not None,
            likely=self.likely,
            continued=self.continued,
        )

    def forget(self, cuts: Sequence[Range], entry: Entry) -> None:
        """Evict the ranges `cuts` of `entry`, which is the utterance's present entry."""
        ids = [token for segment in entry.segments for token in segment.ids]
        self._evicted_tokens.update(token for start, end in cuts for token in ids[start:end])
        self._evicted.cut(cuts)

    def remaining_tokens(self, tokens: Collection[int]) -> Collection[int]:
        """`tokens`, all that the utterance ever had, without the evicted ones."""
        return Counter(tokens) - self._evicted_tokens

    def entry(self, tokenizer: Tokenizer, *, tentative: bool = True) -> Entry:
        """The utterance as an item, with or without the tentative words. Text is split at word
        boundaries only, which gives the same tokens as encoding it as a whole."""
        segments = self._segments(tokenizer, tentative)
        return Entry(self.item_id, Role.USER, remove_ranges(segments, self._evicted.ranges))

    def _segments(self, tokenizer: Tokenizer, tentative: bool) -> Sequence[Segment]:
        segments: list[Segment] = []
        parts = self.parts if tentative else self.sure_parts
        if parts is not None:
            segments += [Segment(Modality.IMAGE, view.ids) for _, view in self.views]
            segments += [Segment(modality, tuple(ids)) for modality, ids in parts]
            return segments
        at = 0
        for offset, view in self.views:
            place = self._place(offset)
            _add_words(segments, tokenizer, self.read[at:place])
            segments.append(Segment(Modality.IMAGE, view.ids))
            at = place
        end = len(self.read) if tentative else self._place(len(self.committed))
        _add_words(segments, tokenizer, self.read[at:end])
        return segments

    def _place(self, offset: int) -> int:
        """The offset in `read` that corresponds to one in the committed text."""
        return place_in(self.read, self.committed + self.tentative, offset)


def _common_words(text: str, other: str) -> str:
    """The common prefix, cut at a word boundary (a space)."""
    pairs = zip(text, other, strict=False)
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if any(length < len(one) and one[length] != " " for one in (text, other)):
        length = max(text.rfind(" ", 0, length + 1), 0)
    return text[:length]


def _moved(offset: int, text: str, final: str) -> int:
    """The offset in `final` that corresponds to `offset`, a word boundary of `text`: behind the
    same word, however it is spelt, or else behind the last word before it that `final` has too."""
    before, after = text[:offset].split(), final.split()
    kept = 0
    words, others = list(map(bare, text.split())), list(map(bare, after))
    for block in SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks():
        if block.size and block.a < len(before):
            kept = block.b + min(len(before) - block.a, block.size)
    return len(" ".join(after[:kept]))


def _add_words(segments: list[Segment], tokenizer: Tokenizer, words: str) -> None:
    # Recognised text may begin with a space (Whisper's tokens do); a message does not.
    words = words if segments else words.lstrip()
    if words:
        segments.append(Segment(Modality.AUDIO, tuple(tokenizer.encode(words))))


# With less than this share of a chunk's time left after its recognition, tentative words are not
# prefilled: committed words and answers have the decoder to themselves until the engine catches up.
HEADROOM_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class AudioBatch:
    """One or more consecutive chunks and their utterance."""

    utterance: Utterance
    chunks: tuple[api.Audio, ...]

    @property
    def samples(self) -> int:
        return sum(chunk.samples for chunk in self.chunks)

    def pcm(self) -> Pcm:
        return np.concatenate([to_float(chunk) for chunk in self.chunks])

    def keep_sound(self) -> None:
        """Keep it for the case that the utterance is continued, if it may be."""
        if self.utterance.heard is not None:
            self.utterance.heard.append(self.pcm())

    def skip(self) -> None:
        """Its pass failed. It was said all the same: what comes later lies behind it, a final pass
        that was made before it is not the last, and it is heard again if the utterance is
        continued."""
        self.utterance.samples += self.samples
        self.utterance.finished = False
        self.keep_sound()

    def has_headroom(self, now_ns: int) -> bool:
        """Whether there is time to prefill tentative words too, given the words at `now_ns`."""
        last = self.chunks[-1]
        due_ns = chunk_due_ns(last)
        return due_ns - now_ns >= HEADROOM_SHARE * (due_ns - last.received_ns)

    def traces(
        self,
        stages_ms: Mapping[str, float],
        share: float,
        prefilled_before: int,
        rolled_back: int,
    ) -> list[ChunkTrace]:
        """A trace of each chunk. Work is divided by chunk length; tokens count for the last one."""
        traces = [
            ChunkTrace(
                chunk, budget_stages(stages_ms, share * chunk.samples / max(self.samples, 1))
            )
            for chunk in self.chunks
        ]
        traces[-1].prefilled_before = prefilled_before
        traces[-1].rolled_back = rolled_back
        return traces


def between_frames(
    heard: Sequence[Pcm | Image],
) -> Iterator[tuple[list[Pcm], Image | None]]:
    """Runs of sound, each with the frame behind it."""
    sounds: list[Pcm] = []
    for piece in heard:
        if isinstance(piece, Image):
            yield sounds, piece
            sounds = []
        else:
            sounds.append(piece)
    yield sounds, None
