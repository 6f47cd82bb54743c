"""Interfaces of what a session needs besides a decoder: recogniser, image encoder, tokenizer.

Implemented by `engine.asr`, `engine.vision`, `engine.models` and `engine.chat.tokenizer`; tests use
scripted ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from headstart.engine.api import Image, Sampling, Span
from headstart.engine.chat.render import Chat, Modality
from headstart.engine.kvcache.token_stream import Stream

TokenRuns = Sequence[tuple[Modality, Sequence[int]]]
Pcm = npt.NDArray[np.float32]  # [samples], 16 kHz mono, -1..1
Clock = Callable[[], int]  # `time.monotonic_ns`, or a test's


class Recognition(Protocol):
    """The recogniser's result for an utterance so far (`headstart.engine.asr.Heard`)."""

    @property
    def committed(self) -> str:
        """Words that stay while speech goes on. Within an utterance this only grows, except that
        words that are heard again, in a final pass or behind a pause, may be others."""
        ...

    @property
    def tentative(self) -> str:
        """Words that may still change. They follow `committed`, leading space included."""
        ...

    @property
    def stages_ms(self) -> Mapping[str, float]:
        """Time spent by stage: mel, encode, decode."""
        ...

    @property
    def likely(self) -> tuple[float, ...]:
        """As in `headstart.engine.api.Hearing`."""
        ...


@dataclass(frozen=True, slots=True)
class EmbeddedRecognition:
    """The result of a recogniser that gives embeddings in place of words.

    `parts`: the utterance as tokens of its stream. `sure_parts`: those that will not change.
    `transcribed`: the words come from a separate transcriber and are for people to read; otherwise
    there are none.
    """

    parts: TokenRuns
    sure_parts: TokenRuns
    stages_ms: Mapping[str, float]
    transcribed: bool = False
    committed: str = ""
    tentative: str = ""
    likely: tuple[float, ...] = ()


class SpeechRecognizer(Protocol):
    """Words, or embeddings, of sound that comes in chunks."""

    def open(self, stream: Stream) -> Any:
        """The recogniser's state for a new utterance in `stream`; opaque to the session."""
        ...

    def recognize_batch(
        self, utterances: Sequence[Any], pcms: Sequence[Pcm]
    ) -> Sequence[Recognition]:
        """Take a chunk of each of several utterances. Each result is what the utterance would give
        alone; `stages_ms` is the time of the whole pass. Raises an `EngineError`; then the chunks
        of all utterances have no words yet: a recogniser that keeps sound hears them with the next
        ones, for others they are lost."""
        ...

    def finish(self, utterance: Any, pcm: Pcm | None = None) -> Recognition:
        """The result of a final pass over what came so far, `pcm` behind it; committed words may
        change too. Speech may go on after it. Raises an `EngineError`; then
        it is with `pcm` as with a chunk."""
        ...


@runtime_checkable
class RecognizesInPieces(Protocol):
    """A `SpeechRecognizer` whose passes can be left and gone on with: a generator yields wherever
    other utterances may be heard, and other work done, before it goes on."""

    def recognize_in_pieces(
        self, utterances: Sequence[Any], pcms: Sequence[Pcm]
    ) -> Generator[None, None, Sequence[Recognition]]: ...

    def finish_in_pieces(
        self, utterance: Any, pcm: Pcm | None = None
    ) -> Generator[None, None, Recognition]: ...


@dataclass(frozen=True, slots=True)
class View:
    """A picture as tokens of one stream, with a text for people and logs."""

    ids: tuple[int, ...]
    text: str
    key: str  # views with equal keys look the same
    encoded_ns: tuple[int, int] | None = None  # from when to when, if it was beside the steps


@runtime_checkable
class LiveFrameEncoder(Protocol):
    """An utterance state that takes live frames too, for models that see while they hear."""

    def add_frame(self, image: Image, time_s: float) -> None: ...

    def token_ids(self) -> Collection[int]:
        """All token ids that the utterance may still use, with repetitions."""
        ...


class ImageEncoder(Protocol):
    """Tokens of a picture for the decoder."""

    def encode_image(self, image: Image, stream: Stream, *, live: bool = False) -> View:
        """Visual tokens of `image`, a still or a frame of a `live` camera, with their embeddings
        interned in `stream`."""
        ...


class EncodedPicture(Protocol):
    """A picture that is being encoded, or has been."""

    @property
    def done(self) -> bool:
        """Set by the `PictureEncoding`'s methods only, so on the engine's thread."""
        ...


class PictureEncoding(Protocol):
    """Encodes pictures beside the engine's steps, for the `ImageEncoder` that takes them then.
    Never waits."""

    def begin(
        self, image: Image, owner: str, domain: bytes, due_ns: int, *, live: bool
    ) -> EncodedPicture | None:
        """Begin to encode a picture of the session `owner`, whose results are shared within
        `domain`. None for one that is encoded when it is taken, or because too many of the session
        wait: it may be begun later."""
        ...

    def collect(self) -> None:
        """Mark what has been encoded since as done."""
        ...

    def release(self, images: Iterable[Image]) -> None:
        """The command that brought these is done, with or without them."""
        ...

    def forget(self, owner: str) -> None:
        """Drop the pictures of a session that is closed."""
        ...

    def fileno(self) -> int:
        """A file descriptor that is readable while there is something to collect."""
        ...

    def close(self) -> None: ...


class Look(IntEnum):
    """How closely a question asks to look at what is written in a picture."""

    GLANCE = 0  # it is about something else
    WRITING = 1
    CLOSELY = 2  # small print


class Detail(IntEnum):
    """Resolutions of a still, as the number of tokens it has at most."""

    LOW = 64
    MEDIUM = 256
    HIGH = 1024


@dataclass(frozen=True, slots=True)
class StillPart:
    """What is shown of a still, in `max_tokens` at most: all of it (region 0), or one of its
    `regions`, numbered from 1."""

    max_tokens: int
    region: int = 0
    regions: int = 1

    def covers(self, other: StillPart) -> bool:
        """Whether it shows all of `other`, at no lower resolution."""
        if self.region == other.region:
            return self.max_tokens >= other.max_tokens
        return not self.region and self.max_tokens >= other.max_tokens * other.regions


class StillEncoder(Protocol):
    """Encodes as much of a still as a question needs."""

    def parts_for(
        self, image: Image, words: Sequence[str], domain: bytes, before: Image | None = None
    ) -> Sequence[StillPart]:
        """What is shown for what is said beside, or after, a picture; results are shared within
        `domain`. `before`: the picture before it."""
        ...

    def encode(self, image: Image, stream: Stream, part: StillPart) -> View: ...

    def take_spans(self) -> list[Span]:
        """The work since somebody called this."""
        ...


class Reading(Protocol):
    """The reading of one picture, which may be under way."""

    look: Look
    done: bool  # set by the `PictureReader`'s methods only, so on the engine's thread
    live: bool  # a camera's frame, not a still
    given_up: bool  # done without having been read
    began_ns: int
    ended_ns: int

    @property
    def lines(self) -> tuple[str, ...]:
        """What is written there, once it is done."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether a closer look would find more."""
        ...

    def note(self, *, whole: bool) -> str:
        """A note on what is written, for the language model; "" for nothing. `whole`: long enough
        for a question about it."""
        ...

    def same_as(self, other: Any) -> bool:
        """Whether another reading has the same words, as far as can be read."""
        ...


class PictureReader(Protocol):
    """Reads what is written in pictures, beside the engine's steps. Never waits."""

    def look_for(self, question: str) -> Look: ...

    def caveat(self, question: str) -> str:
        """A note that a question about a picture cannot be answered; "" if it can, or is about
        something else."""
        ...

    def begin(
        self, picture: Image, owner: str, domain: bytes, after: Any, *, live: bool
    ) -> Reading | None:
        """Begin to read a picture of the stream `owner`, whose results are shared within `domain`.
        None for a frame of a `live` camera that looks like that of the reading `after`."""
        ...

    def begin_closer(self, reading: Any, domain: bytes) -> Reading | None:
        """Begin to read the same picture more closely; None if that has been done."""
        ...

    def collect(self) -> None:
        """Mark what has been read since as done."""
        ...

    def forget(self, owner: str) -> None:
        """Drop the pictures of a stream that is closed: those that wait, and the rest of the one
        that is being read."""
        ...

    def fileno(self) -> int:
        """A file descriptor that is readable while there is something to collect."""
        ...

    def close(self) -> None: ...


class TextDecoder(Protocol):
    """Converts tokens to text at UTF-8 boundaries."""

    def feed(self, token: int) -> str: ...
    def flush(self) -> str: ...


class Tokenizer(Protocol):
    """Text to token ids and, one by one, back."""

    def encode(self, text: str) -> list[int]:
        """Encode plain text; control tokens spelt in it are encoded as letters."""
        ...

    def stream_decoder(self) -> TextDecoder: ...


class Sampler(Protocol):
    """Draws an answer's tokens."""

    def sample(self, logits: Any, context: Sequence[int]) -> int:
        """The token that follows on `context`; logits: fp32 [vocab_size]."""
        ...


@dataclass(frozen=True, slots=True)
class Thinning:
    """Eviction of single words by attention. `share`: of a past message's words, those that stay.
    `attention`: the attention mass of the tokens of a stream whose K/V are in the cache, fp32
    [kv_len]; None if it is not known."""

    share: float
    attention: Callable[[Stream], npt.NDArray[np.float32] | None]


@dataclass(frozen=True, slots=True)
class ModelServices:
    """The model services that all sessions of one engine share."""

    chat: Chat
    tokenizer: Tokenizer
    recognizer: SpeechRecognizer
    image_encoder: ImageEncoder
    new_sampler: Callable[[Sampling], Sampler]  # raises `BadSampling`
    stop_ids: frozenset[int]
    kv_bytes_per_token: int
    kv_narrow_bytes_per_token: int = 0  # of pictures, where their K/V are narrower; 0: they are not
    reader: PictureReader | None = None  # None: a model that reads by itself, or nobody does
    encoding: PictureEncoding | None = None  # None: pictures are encoded within a step
    thinning: Thinning | None = None  # None: words of past turns stay
    stills: StillEncoder | None = None  # None: `image_encoder`, in one resolution
