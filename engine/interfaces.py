"""What a session needs besides a decoder: ears, eyes and words, each behind a small interface.

The real ones are `engine.asr`, `engine.vision` and `engine.chat.tokenizer`; tests bring scripted
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from headstart.engine.api import Image, Sampling
from headstart.engine.chat.render import Chat, Modality
from headstart.engine.kvcache.token_stream import Stream

Parts = Sequence[tuple[Modality, Sequence[int]]]
Pcm = npt.NDArray[np.float32]  # [samples], 16 kHz mono, -1..1


class Words(Protocol):
    """What the ears make of an utterance so far (`headstart.engine.asr.Heard`)."""

    @property
    def committed(self) -> str:
        """Words that will not change while speech goes on: within an utterance it only grows, but
        where a final pass has other words."""
        ...

    @property
    def tentative(self) -> str:
        """Words that may still change; follow on `committed`, leading space included."""
        ...

    @property
    def stages_ms(self) -> Mapping[str, float]:
        """Work by stage: mel, encode, decode."""
        ...

    @property
    def likely(self) -> tuple[float, ...]:
        """As in `headstart.engine.api.Hearing`."""
        ...


@dataclass(frozen=True, slots=True)
class Embedded:
    """What ears make of an utterance that give embeddings in place of words: the utterance as
    tokens of its stream, and those without what may still change. `transcribed`: the words are what
    somebody else heard, for people to read; else there are none."""

    parts: Parts
    sure_parts: Parts
    stages_ms: Mapping[str, float]
    transcribed: bool = False
    committed: str = ""
    tentative: str = ""
    likely: tuple[float, ...] = ()


class SpeechRecognizer(Protocol):
    def open(self, stream: Stream) -> Any:
        """State of a new utterance in `stream`, opaque to the session."""
        ...

    def hear_many(self, utterances: Sequence[Any], pcms: Sequence[Pcm]) -> Sequence[Words]:
        """Take a chunk of each of several utterances; what comes out is what each would give alone,
        and `stages_ms` is the work of all of them. Raises an `EngineError`: then the chunks are
        lost, of all of them."""
        ...

    def finish(self, utterance: Any) -> Words:
        """The final words of what was heard so far, committed ones too where it hears them
        otherwise. Speech may go on after it."""
        ...


@dataclass(frozen=True, slots=True)
class View:
    """A picture as tokens of one stream, and what they stand for (for people and logs)."""

    ids: tuple[int, ...]
    text: str
    key: str  # views with equal keys look the same


@runtime_checkable
class LiveFrameEncoder(Protocol):
    """Ears' state of an utterance that takes live frames as well: the model sees while it hears."""

    def watch(self, image: Image, time_s: float) -> None: ...

    def held(self) -> Collection[int]:
        """All token ids that it may still say, those that it says twice twice."""
        ...


class ImageEncoder(Protocol):
    def look(self, image: Image, stream: Stream, *, live: bool = False) -> View:
        """Visual tokens of `image`, a still or one of a `live` camera's, their embeddings interned
        in `stream`."""
        ...


class TextDecoder(Protocol):
    """Tokens to text at UTF-8 boundaries."""

    def feed(self, token: int) -> str: ...
    def flush(self) -> str: ...


class Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]:
        """Plain text; control tokens that it spells stay letters."""
        ...

    def stream_decoder(self) -> TextDecoder: ...


class Sampler(Protocol):
    def sample(self, logits: Any, context: Sequence[int]) -> int: ...


@dataclass(frozen=True, slots=True)
class ModelServices:
    """All that sessions of one engine share."""

    chat: Chat
    tokenizer: Tokenizer
    ears: SpeechRecognizer
    eyes: ImageEncoder
    new_sampler: Callable[[Sampling], Sampler]  # raises `BadSampling`
    stop_ids: frozenset[int]
    kv_bytes_per_token: int
