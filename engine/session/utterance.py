"""The open utterance: what is being said right now, as far as it has been recognised.

`Utterance` is one turn's words and camera views so far, `AudioBatch` the sound of it that one pass
of the recogniser takes.

"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import takewhile
from typing import Any

import numpy as np

from headstart.engine import api
from headstart.engine.api import Audio, Clip, Hearing, Role, TurnRef
from headstart.engine.chat.context_window import Holes, Range, without
from headstart.engine.chat.render import Entry, Modality, Segment
from headstart.engine.interfaces import Embedded, Parts, Pcm, Tokenizer, View, Words
from headstart.engine.session.chunk_trace import ChunkTrace, budget_stages
from headstart.engine.session.command_queue import chunk_due_ns

_INT16_SCALE = 1.0 / 32768.0


def to_float(audio: Audio | Clip) -> Pcm:
    """s16le bytes as float32 in [-1, 1)."""
    return np.frombuffer(audio.pcm, dtype="<i2").astype(np.float32) * _INT16_SCALE


@dataclass(slots=True)
class Utterance:
    """Words and camera views of one turn.

    Committed text only grows, but at a final pass: then it is what the final words have of it.
    `views` hold where in the committed text a view came, at a word boundary: that offset stays good
    while words are added, and a final pass moves it with the words around it.
    """

    ref: TurnRef
    item_id: str
    state: Any  # the ears' own, opaque here
    start_sample: int
    committed: str = ""
    tentative: str = ""
    likely: tuple[float, ...] = ()
    samples: int = 0
    finished: bool = False  # the final hearing pass was made for this revision
    parts: Parts | None = None  # the utterance as tokens, where the ears give no words
    sure_parts: Parts | None = None
    transcribed: bool = True  # its text is what was said
    views: list[tuple[int, View]] = field(default_factory=list)
    _holes: Holes = field(default_factory=Holes)  # what was evicted of its tokens
    _gone: Counter[int] = field(default_factory=Counter)  # those tokens

    @property
    def text(self) -> str:
        return (self.committed + self.tentative).strip()

    @property
    def says_something(self) -> bool:
        """Whether there is anything to answer."""
        sound = any(m is Modality.AUDIO and ids for m, ids in self.parts or ())
        return bool(self.text) or sound

    def take(self, words: Words, samples: int) -> None:
        """What the ears make of it after `samples` more."""
        assert words.committed.startswith(self.committed), (words.committed, self.committed)
        self.committed, self.tentative = words.committed, words.tentative
        self.views = [(min(at, len(self.committed)), view) for at, view in self.views]
        self.likely = words.likely
        self._take_parts(words)
        self.samples += samples
        self.finished = False

    def finish(self, words: Words) -> None:
        """The final words, of the utterance heard as a whole. Those behind what was committed, and
        from the first one on that differs, are tentative until the endpoint: speech may resume."""
        final = words.committed + words.tentative
        self.views = [(_moved(at, self.committed, final), view) for at, view in self.views]
        self.committed = _common_words(self.committed, final)
        self.tentative = final[len(self.committed) :]
        self.likely = words.likely
        self._take_parts(words)
        self.finished = True

    def _take_parts(self, words: Words) -> None:
        if isinstance(words, Embedded):
            self.parts, self.sure_parts = words.parts, words.sure_parts
            self.transcribed = words.transcribed

    def see(self, view: View) -> None:
        """Put a view behind the words that stand."""
        self.views.append((len(self.committed), view))

    def hearing(self, session: str) -> Hearing:
        """The words so far, for the gateway."""
        return Hearing(
            session=session,
            ref=self.ref,
            committed=self.committed,
            tentative=self.tentative,
            at_sample=self.start_sample + self.samples,
            final=self.finished,
            wordless=self.parts is not None,
            likely=self.likely,
        )

    def forget(self, cuts: Sequence[Range], entry: Entry) -> None:
        """Evict tokens of `entry`, which is what the utterance read until now."""
        ids = [token for segment in entry.segments for token in segment.ids]
        self._gone.update(token for start, end in cuts for token in ids[start:end])
        self._holes.cut(cuts)

    def still_said(self, tokens: Collection[int]) -> Collection[int]:
        """Those of `tokens`, all that it ever said, that were not evicted."""
        return Counter(tokens) - self._gone

    def entry(self, tokenizer: Tokenizer, *, tentative: bool = True) -> Entry:
        """The utterance as an item, with or without the words that may still change. Cut at a word
        boundary, text gives the same tokens as whole."""
        segments = self._segments(tokenizer, tentative)
        return Entry(self.item_id, Role.USER, without(segments, self._holes.ranges))

    def _segments(self, tokenizer: Tokenizer, tentative: bool) -> Sequence[Segment]:
        segments: list[Segment] = []
        parts = self.parts if tentative else self.sure_parts
        if parts is not None:
            segments += [Segment(Modality.IMAGE, view.ids) for _, view in self.views]
            segments += [Segment(modality, tuple(ids)) for modality, ids in parts]
            return segments
        whole = self.committed + (self.tentative if tentative else "")
        at = 0
        for offset, view in self.views:
            _add_words(segments, tokenizer, whole[at:offset])
            segments.append(Segment(Modality.IMAGE, view.ids))
            at = offset
        _add_words(segments, tokenizer, whole[at:])
        return segments


def _common_words(text: str, other: str) -> str:
    """What both begin with, in whole words as spaces part them."""
    pairs = zip(text, other, strict=False)
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if any(length < len(one) and one[length] != " " for one in (text, other)):
        length = max(text.rfind(" ", 0, length + 1), 0)
    return text[:length]


def _moved(offset: int, text: str, final: str) -> int:
    """Where a place between words of `text` is in `final`: behind the same word, if it is there,
    else behind the last one before it that is."""
    before, after = text[:offset].split(), final.split()
    kept = 0
    for block in SequenceMatcher(None, text.split(), after, autojunk=False).get_matching_blocks():
        if block.size and block.a < len(before):
            kept = block.b + min(len(before) - block.a, block.size)
    return len(" ".join(after[:kept]))


def _add_words(segments: list[Segment], tokenizer: Tokenizer, words: str) -> None:
    # The ears may begin with a space (Whisper's tokens do); a message does not.
    words = words if segments else words.lstrip()
    if words:
        segments.append(Segment(Modality.AUDIO, tuple(tokenizer.encode(words))))


# Less of a chunk's time than this left after hearing it: what may still change is not prefilled.
# Committed words and answers have the decoder to themselves until the engine has caught up.
HEADROOM_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class AudioBatch:
    """Chunks that follow on each other, and the utterance they belong to. At least one."""

    utterance: Utterance
    chunks: tuple[api.Audio, ...]

    @property
    def samples(self) -> int:
        return sum(chunk.samples for chunk in self.chunks)

    def pcm(self) -> Pcm:
        return np.concatenate([to_float(chunk) for chunk in self.chunks])

    def has_headroom(self, now_ns: int) -> bool:
        """Whether, the words being known at `now_ns`, there is time for more than the sure ones."""
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
        """The books of each chunk. Work is divided by length; the tokens are the last one's."""
        traces = [
            ChunkTrace(
                chunk, budget_stages(stages_ms, share * chunk.samples / max(self.samples, 1))
            )
            for chunk in self.chunks
        ]
        traces[-1].prefilled_before = prefilled_before
        traces[-1].rolled_back = rolled_back
        return traces
