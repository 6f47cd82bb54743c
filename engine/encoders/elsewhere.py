"""A model whose pictures are encoded by another process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.engine.chat.render import Modality
from headstart.engine.encoders.client import EncoderClient, UnitOfPictures
from headstart.engine.encoders.errors import EncoderFailed
from headstart.engine.encoders.messages import MAX_UNITS, Picture
from headstart.engine.models.perception.interface import (
    StreamModel,
    VideoFrame,
    VisionUnit,
)
from headstart.engine.models.perception.wrapper import ModelWrapper


@dataclass(frozen=True, slots=True)
class WaitingFrames:
    """Those of an incomplete unit."""

    frames: tuple[VideoFrame, ...] = ()


class VisionElsewhere(ModelWrapper):
    """`base`, which has no weights for pictures:
    `client` encodes them. Units come back as embeddings, so `project` has nothing to do for them.
    """

    def __init__(self, base: StreamModel, client: EncoderClient) -> None:
        assert base.spec.vision is not None
        super().__init__(base)
        self.client = client
        self._per_unit = base.spec.vision.frames_per_unit
        self._has_stills = base.spec.vision.tiled is not None

    def open_frames(self) -> WaitingFrames:
        return WaitingFrames()

    def encode_frames(
        self, frames: Sequence[VideoFrame], state: WaitingFrames, final: bool
    ) -> tuple[list[VisionUnit], WaitingFrames]:
        """Raises an `EncoderFault`; then the state is as it was."""
        waiting = [*state.frames, *frames]
        whole = len(waiting) if final else len(waiting) // self._per_unit * self._per_unit
        units = [waiting[at : at + self._per_unit] for at in range(0, whole, self._per_unit)]
        found: list[VisionUnit] = []
        for at in range(0, len(units), MAX_UNITS):
            found += self._encoded(units[at : at + MAX_UNITS])
        return found, WaitingFrames(tuple(waiting[whole:]))

    def _encoded(self, units: Sequence[Sequence[VideoFrame]]) -> list[VisionUnit]:
        answers = self.client.encode([_unit(frames) for frames in units])
        found = []
        for frames, pictures in zip(units, answers, strict=True):
            if pictures is None or len(pictures) != 1 or not pictures[0].rows:
                raise EncoderFailed("it did not answer with one unit of a frame")
            (picture,) = pictures
            self._require_width(picture)
            found.append(
                VisionUnit(picture.vectors, picture.rows, picture.columns, frames[0].time_s)
            )
        return found

    def encode_still(self, picture: VideoFrame) -> Tensor | None:
        """Raises an `EncoderFault`."""
        if not self._has_stills:
            return None
        (pictures,) = self.client.encode([_unit([picture])], still=True)
        if pictures is None:
            self._has_stills = False
            return None
        if not pictures:
            raise EncoderFailed("it answered with no embeddings")
        for each in pictures:
            self._require_width(each)
        return torch.cat([each.vectors for each in pictures])

    def _require_width(self, picture: Picture) -> None:
        """Embeddings of another width would end the step of all sessions."""
        width, expected = picture.vectors.shape[1], self.spec.decoder.hidden
        if width != expected:
            raise EncoderFailed(f"expected embeddings of {expected} numbers, got {width}")

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        return features if modality is Modality.IMAGE else self.base.project(features, modality)


def _unit(frames: Sequence[VideoFrame]) -> UnitOfPictures:
    return UnitOfPictures([frame.rgb for frame in frames], frames[0].domain)
