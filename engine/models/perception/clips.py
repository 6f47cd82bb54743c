"""One clip's way from sound and frames to token ids: the link between a model's encoders and a
stream.

It holds no K/V. `parts` states what the stream should read, and `Stream.reconcile` finds out which
of it is new.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.engine.chat.render import Modality
from headstart.engine.errors import PictureNotEncoded
from headstart.engine.kvcache.positions import MediaKind, MediaPosition
from headstart.engine.kvcache.soft_tokens import SoftTokens
from headstart.engine.models.perception.interface import (
    ClipTokens,
    SoundTokens,
    StreamModel,
    TailPolicy,
    UnitTokens,
    VideoFrame,
    VisionUnit,
)

log = logging.getLogger("headstart.engine")

_SOUND = MediaPosition(MediaKind.AUDIO)
_PICTURE = MediaPosition(MediaKind.IMAGE)


class ClipEncoder:
    """The encoding of one clip. Embeddings are interned in `soft`."""

    def __init__(self, model: StreamModel, soft: SoftTokens, tail: TailPolicy) -> None:
        self._model, self._soft, self._tail = model, soft, tail
        self._audio = model.open_audio(tail) if model.spec.audio is not None else None
        self._frames = model.open_frames() if model.spec.vision is not None else None
        self._committed: list[int] = []
        self._provisional: list[int] = []
        self._units: list[UnitTokens] = []
        self._heard = False
        # The clip's end as if it ended now; it may still go on.
        self._finished = False
        self._last_sound: list[int] = []
        self._last_units: list[UnitTokens] = []

    def feed(self, pcm: Tensor) -> None:
        """Take [samples] fp32 at 16 kHz. After `finish`, this continues the clip."""
        self._finished, self._heard = False, True
        out = self._model.encode_audio(pcm, self._audio, False)
        self._audio = out.state
        self._committed += self._sound_ids(out.committed)
        self._provisional = self._sound_ids(out.provisional)

    def see(self, frames: Sequence[VideoFrame]) -> None:
        """Take frames, in order of time."""
        self._finished = False
        units, self._frames = self._model.encode_frames(frames, self._frames, False)
        for unit in units:
            self._units.append(self._unit_tokens(unit, len(self._units)))

    def finish(self) -> None:
        """Encode the open units as if the clip ended here. Further input undoes it."""
        if self._finished:
            return
        self._finished = True
        self._last_sound, self._last_units = [], []
        if self._heard:
            out = self._model.encode_audio(torch.empty(0), self._audio, True)
            self._last_sound = self._sound_ids(out.committed)
        if self._frames is not None:
            try:
                units, _ = self._model.encode_frames([], self._frames, True)
            except PictureNotEncoded as error:  # what was said is known all the same
                log.error("the last frame of a clip is left out: %s", error)
                units = []
            self._last_units = [self._unit_tokens(unit, len(self._units)) for unit in units]
            if self._units or self._last_units:
                self._last_units += self._closing()

    def parts(self, tail: TailPolicy | None = None) -> list[tuple[Modality, list[int]]]:
        """The tokens to read now, by the clip's tail policy or by `tail`; after `finish`, all."""
        sound = SoundTokens(self._committed, self._open_sound) if self._heard else None
        last = self._last_units if self._finished else []
        clip = ClipTokens(sound, (*self._units, *last), self._finished)
        return self._model.layout.clip(clip, tail or self._tail)

    @property
    def _open_sound(self) -> list[int]:
        return self._last_sound if self._finished else self._provisional

    def _closing(self) -> list[UnitTokens]:
        """The embeddings that end a clip's pictures, if the model has any."""
        vectors = self._model.clip_closing()
        if not len(vectors):
            return []
        last = [*self._units, *self._last_units][-1]
        return [UnitTokens(tuple(intern(self._soft, vectors)), last.time + 1, last.time_s)]

    def ids(self) -> list[int]:
        """The token ids of `parts` in one list."""
        return [token for _, ids in self.parts() for token in ids]

    def _sound_ids(self, features: Tensor) -> list[int]:
        if not len(features):
            return []
        vectors = self._model.project(features, Modality.AUDIO)
        return self._soft.intern(vectors.numpy(), [_SOUND] * len(vectors))

    def _unit_tokens(self, unit: VisionUnit, index: int) -> UnitTokens:
        position = self._model.unit_position(index, unit.time_s)
        ids = intern_unit(self._model, self._soft, unit, position)
        return UnitTokens(tuple(ids), position.time, unit.time_s)


@dataclass(frozen=True, slots=True)
class PictureFeatures:
    """A picture as embeddings, not yet part of a stream: the units of a frame, or a still [n,
    hidden] without a grid."""

    units: Sequence[tuple[VisionUnit, Tensor]] = ()
    still: Tensor | None = None


def encode_picture(model: StreamModel, frame: VideoFrame, *, live: bool) -> PictureFeatures:
    """A still, or a `live` frame as a clip of one frame. Knows no stream. Raises
    `UnsupportedInput`."""
    still = None if live else model.encode_still(frame)
    if still is not None:
        return PictureFeatures(still=still)
    units, _ = model.encode_frames([frame], model.open_frames(), True)
    return PictureFeatures([(unit, model.project(unit.features, Modality.IMAGE)) for unit in units])


def encode_pictures(
    model: StreamModel, frames: Sequence[VideoFrame], *, live: bool
) -> list[PictureFeatures]:
    """Several pictures of one size. Live frames that are units by themselves are encoded as one
    clip, which a family may stack."""
    seen = model.spec.vision
    if not live or len(frames) == 1 or seen is None or seen.frames_per_unit > 1:
        return [encode_picture(model, frame, live=live) for frame in frames]
    units, _ = model.encode_frames(frames, model.open_frames(), True)
    assert len(units) == len(frames)
    return [
        PictureFeatures([(unit, model.project(unit.features, Modality.IMAGE))]) for unit in units
    ]


def intern_picture(model: StreamModel, soft: SoftTokens, picture: PictureFeatures) -> list[int]:
    """The token ids of a picture in `soft`."""
    if picture.still is not None:
        return intern(soft, picture.still)
    found = (_intern_cells(model, soft, unit, cells, _PICTURE) for unit, cells in picture.units)
    return [token for ids in found for token in ids] + intern(soft, model.clip_closing())


def intern(soft: SoftTokens, pictured: Tensor) -> list[int]:
    """Intern embeddings [n, hidden] of pictures without a grid."""
    return soft.intern(pictured.numpy(), [_PICTURE] * len(pictured))


def intern_unit(
    model: StreamModel, soft: SoftTokens, unit: VisionUnit, first: MediaPosition = _PICTURE
) -> list[int]:
    """A vision unit's token ids, its cells in `soft` with positions in the unit's grid behind
    `first`."""
    cells = model.project(unit.features, Modality.IMAGE)
    return _intern_cells(model, soft, unit, cells, first)


def _intern_cells(
    model: StreamModel, soft: SoftTokens, unit: VisionUnit, cells: Tensor, first: MediaPosition
) -> list[int]:
    positions = [first._replace(row=row, column=column) for row, column in unit.grid]
    ids = soft.intern(cells.numpy(), positions)
    return model.layout.unit(ids, [row for row, _ in unit.grid])
