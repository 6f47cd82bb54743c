"""What a model is to the engine: encoders that take a stream in pieces, and rules.

Encoders are functions of (input, state): they return a new state and leave the old one good, so
whoever speculates keeps the old state and has nothing to undo.

Exactness rests on the encoder's own blocks. Each model declares in its `ModelSpec` the unit in
which sound can be committed; what lies behind the last whole unit is *provisional*: right as an
offline encoding of the sound so far, and replaced when more of it comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from headstart.engine.chat.render import Modality
from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.decoder.decoder import Forward
from headstart.engine.kvcache.positions import MediaPosition, PositionRule


class TailPolicy(StrEnum):
    """What of an open unit is prefilled."""

    CLOSED = "closed"  # nothing: it waits until it is closed, or speech ends
    PROVISIONAL = "provisional"  # what there is of it, rolled back when more comes


@dataclass(frozen=True, slots=True)
class AudioSpec:
    """How a model hears. `unit_frames` mel frames (10 ms each) are committed together as
    `unit_tokens` tokens; `look_ahead_frames` more must be there."""

    mels: int
    unit_frames: int
    unit_tokens: int
    look_ahead_frames: int = 0

    @property
    def unit_ms(self) -> int:
        return self.unit_frames * 10


@dataclass(frozen=True, slots=True)
class StillSpec:
    """What a still costs: `fixed_tokens`, and for each of its cells of `cell_pixels`
    `cell_tokens`."""

    max_pixels: int
    cell_pixels: int
    cell_tokens: int
    fixed_tokens: int = 0

    def pixels_for(self, tokens: int) -> int:
        """Pixels of a still that takes about so many tokens; of one cell at the least."""
        cells = max((tokens - self.fixed_tokens) // self.cell_tokens, 1)
        return min(cells * self.cell_pixels, self.max_pixels)


@dataclass(frozen=True, slots=True)
class VisionSpec:
    """How a model sees: pictures whose sides are multiples of `side_px`, `frames_per_unit` at a
    time, within a budget of pixels per frame. A still that is more than a frame has its own."""

    side_px: int
    frames_per_unit: int
    min_pixels: int
    max_pixels: int
    tiled: StillSpec | None = None

    @property
    def still(self) -> StillSpec:
        return self.tiled or StillSpec(self.max_pixels, self.side_px**2, 1)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Facts of one model. None for a sense it lacks."""

    family: str
    decoder: DecoderSpec
    audio: AudioSpec | None = None
    vision: VisionSpec | None = None


class AudioOut(NamedTuple):
    """What `encode_audio` gives: features [n, width] of units closed by this call, features [m,
    width] of the open one so far, and the state behind it."""

    committed: Tensor
    provisional: Tensor
    state: Any


@dataclass(frozen=True, slots=True, eq=False)
class VideoFrame:
    """One picture [height, width, 3] uint8 and when it was taken, from its clip's start."""

    rgb: npt.NDArray[np.uint8]
    time_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class VisionUnit:
    """Features [rows * columns, width] of one unit of frames: its merged grid and its time."""

    features: Tensor
    rows: int
    columns: int
    time_s: float


class SoundTokens(NamedTuple):
    """A clip's sound as token ids: of closed units, and of the open one."""

    committed: Sequence[int]
    provisional: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Shot:
    """One vision unit as token ids, and its time from the clip's start: in position ids, and in
    seconds."""

    ids: tuple[int, ...]
    time: int
    time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ClipTokens:
    """What was heard and seen in one stretch, as token ids. `done`: nothing more comes."""

    sound: SoundTokens | None = None
    shots: Sequence[Shot] = field(default_factory=tuple)
    done: bool = False


class LayoutRule(Protocol):
    """Where a clip's tokens stand, and between which delimiters."""

    def clip(self, clip: ClipTokens, tail: TailPolicy) -> list[tuple[Modality, list[int]]]:
        """The clip as it is to be read now: a pure function, so a changed clip is laid out anew."""
        ...

    def image(self, ids: Sequence[int]) -> list[tuple[Modality, list[int]]]: ...


class StreamModel(Protocol):
    """One model. Raises `UnsupportedInput` for a sense it lacks."""

    @property
    def spec(self) -> ModelSpec: ...
    @property
    def layout(self) -> LayoutRule: ...
    @property
    def decoder(self) -> Forward: ...

    def new_positions(self) -> PositionRule | None:
        """None: positions count from zero."""
        ...

    def shot_place(self, index: int, time_s: float) -> MediaPosition:
        """Where the cells of a clip's vision unit number `index`, taken at `time_s`, count from."""
        ...

    def open_audio(self, tail: TailPolicy) -> Any: ...

    def encode_audio(self, chunk: Tensor, state: Any, final: bool) -> AudioOut:
        """Take `chunk` [samples] at 16 kHz. `final`: the sound ends here, its open unit is encoded
        and committed; the state *before* is the one to go on with if it does not end after all."""
        ...

    def open_frames(self) -> Any: ...

    def encode_frames(
        self, frames: Sequence[VideoFrame], state: Any, final: bool
    ) -> tuple[list[VisionUnit], Any]:
        """Units that `frames` complete; `final` also completes a unit that lacks frames."""
        ...

    def encode_still(self, picture: VideoFrame) -> Tensor | None:
        """A picture that was sent by itself, as embeddings [n, hidden] in a row; None: this model
        takes one as it takes a frame."""
        ...

    def clip_closing(self) -> Tensor:
        """Embeddings [n, hidden] that stand behind a clip's pictures; most models have none."""
        ...

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        """Encoder features -> embeddings [n, hidden] of the decoder."""
        ...

    def embed_text(self, ids: Sequence[int]) -> Tensor:
        """[n, hidden]."""
        ...
