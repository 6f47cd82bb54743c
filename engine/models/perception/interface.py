"""The interface of a model to the engine: streaming encoders, and layout and position rules.

Encoders are functions of (input, state). They return a new state and leave the old one valid, so
speculation keeps the old state and has nothing to undo.

Each model declares in its `ModelSpec` the unit in which sound is committed. What lies behind the
last whole unit is *provisional*: equal to an offline encoding of the sound so far, and replaced
when more sound comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from headstart.engine.chat.render import Modality
from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.decoder.decoder import Forward
from headstart.engine.kvcache.positions import MediaPosition, PositionRule
from headstart.engine.models.perception.passes import Passes


class TailPolicy(StrEnum):
    """How much of an open audio unit is prefilled."""

    CLOSED = "closed"  # nothing until the unit is closed or speech ends
    PROVISIONAL = "provisional"  # all of it so far, rolled back when more comes


@dataclass(frozen=True, slots=True)
class AudioSpec:
    """A model's audio input. `unit_frames` mel frames (10 ms each) are committed together as
    `unit_tokens` tokens, once `look_ahead_frames` more are there."""

    mels: int
    unit_frames: int
    unit_tokens: int
    look_ahead_frames: int = 0

    @property
    def unit_ms(self) -> int:
        return self.unit_frames * 10


@dataclass(frozen=True, slots=True)
class StillSpec:
    """Token cost of a still: `fixed_tokens`, plus `cell_tokens` for each `cell_pixels` pixels."""

    max_pixels: int
    cell_pixels: int
    cell_tokens: int
    fixed_tokens: int = 0

    def pixels_for(self, tokens: int) -> int:
        """Pixels of a still that costs about `tokens`; at least one cell."""
        cells = max((tokens - self.fixed_tokens) // self.cell_tokens, 1)
        return min(cells * self.cell_pixels, self.max_pixels)


@dataclass(frozen=True, slots=True)
class VisionSpec:
    """A model's vision input: sides are multiples of `side_px`, `frames_per_unit` frames at a time,
    within a pixel budget per frame. `tiled`: costs of stills, if they differ from frames."""

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
    """Properties of one model; `audio` or `vision` is None if it lacks that input."""

    family: str
    decoder: DecoderSpec
    audio: AudioSpec | None = None
    vision: VisionSpec | None = None


class AudioOut(NamedTuple):
    """Result of `encode_audio`: features [n, width] of the units closed by this call, features
    [m, width] of the open unit so far, and the new state."""

    committed: Tensor
    provisional: Tensor
    state: Any


@dataclass(frozen=True, slots=True, eq=False)
class VideoFrame:
    """One picture, uint8 [height, width, 3], and its time from the clip's start. `max_tokens`: the
    most tokens that its unit may become; 0: no limit (`headstart.engine.models.pooled`).
    `domain`: what is cached of it is shared only within this (`headstart.engine.api.Open`)."""

    rgb: npt.NDArray[np.uint8]
    time_s: float = 0.0
    max_tokens: int = 0
    domain: bytes = b""


@dataclass(frozen=True, slots=True, eq=False)
class VisionUnit:
    """Features [rows * columns, width] of one unit of frames, with its merged grid and its time.

    `cells`: the row and column of each feature, if they are not the whole grid in order.
    """

    features: Tensor
    rows: int
    columns: int
    time_s: float
    cells: tuple[tuple[int, int], ...] | None = None

    @property
    def grid(self) -> list[tuple[int, int]]:
        """The row and column of each feature."""
        return list(self.cells or product(range(self.rows), range(self.columns)))


class SoundTokens(NamedTuple):
    """A clip's sound as token ids: of closed units, and of the open unit."""

    committed: Sequence[int]
    provisional: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class UnitTokens:
    """One vision unit as token ids, with its time from the clip's start in position ids and in
    seconds."""

    ids: tuple[int, ...]
    time: int
    time_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ClipTokens:
    """The tokens of one clip of sound and pictures. `done`: the clip has ended."""

    sound: SoundTokens | None = None
    units: Sequence[UnitTokens] = field(default_factory=tuple)
    done: bool = False


class LayoutRule(Protocol):
    """The order of a clip's tokens, and the delimiters around them."""

    def clip(self, clip: ClipTokens, tail: TailPolicy) -> list[tuple[Modality, list[int]]]:
        """The tokens to read now; a pure function, so a changed clip is laid out again."""
        ...

    def image(self, ids: Sequence[int]) -> list[tuple[Modality, list[int]]]: ...

    def unit(self, ids: Sequence[int], rows: Sequence[int]) -> list[int]:
        """The tokens of a vision unit: its cells `ids`, row by row, and the model's own tokens
        between rows, if it has any. `rows`: the row of each cell; pooled frames lack some."""
        ...


class StreamModel(Protocol):
    """One model. Methods raise `UnsupportedInput` for an input that it lacks."""

    @property
    def spec(self) -> ModelSpec: ...
    @property
    def layout(self) -> LayoutRule: ...
    @property
    def decoder(self) -> Forward: ...

    def new_positions(self) -> PositionRule | None:
        """A new position rule; None: positions count from zero."""
        ...

    def unit_position(self, index: int, time_s: float) -> MediaPosition:
        """Base position of the cells of a clip's vision unit number `index`, taken at `time_s`."""
        ...

    def open_audio(self, tail: TailPolicy) -> Any: ...

    def encode_audio(self, chunk: Tensor, state: Any, final: bool) -> AudioOut:
        """Take `chunk` [samples] at 16 kHz. `final`: the sound ends here, and its open unit is
        encoded and committed. To continue after all, use the state from before the call."""

    def open_frames(self) -> Any: ...

    def encode_frames(
        self, frames: Sequence[VideoFrame], state: Any, final: bool
    ) -> tuple[list[VisionUnit], Any]:
        """The units that `frames` complete; `final` also completes a unit that lacks frames."""
        ...

    def encode_still(self, picture: VideoFrame) -> Tensor | None:
        """A still as embeddings [n, hidden]; None if this model treats it like a frame."""
        ...

    def clip_closing(self) -> Tensor:
        """Embeddings [n, hidden] behind a clip's pictures; none for most models."""
        ...

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        """Encoder features -> decoder embeddings [n, hidden]."""
        ...

    def embed_text(self, ids: Sequence[int]) -> Tensor:
        """Embeddings [n, hidden] of text tokens."""
        ...

    def use_passes(self, passes: Passes) -> None:
        """Have the passes of its encoders started by `passes`."""
        ...
