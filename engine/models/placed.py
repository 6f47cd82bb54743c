"""A model whose encoders lie on a device: their embeddings come to the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from headstart.engine.chat.render import Modality
from headstart.engine.decoder.decoder import Forward
from headstart.engine.device.encoders import EncoderStream
from headstart.engine.device.place import Place
from headstart.engine.kvcache.positions import MediaPosition, PositionRule
from headstart.engine.models.perception.interface import (
    AudioOut,
    LayoutRule,
    StreamModel,
    TailPolicy,
    VideoFrame,
    VisionUnit,
)


class Placed:
    """`base`, whose encoders' weights are at `place`
    (`engine.models.perception.interface.StreamModel`).

    Features stay there, between an encoder and `project`; embeddings do not.
    """

    def __init__(self, base: StreamModel, place: Place) -> None:
        self.base, self.spec = base, base.spec
        self._stream = EncoderStream(place)
        self._closing = self._stream.fetch(base.clip_closing)

    @property
    def layout(self) -> LayoutRule:
        return self.base.layout

    @property
    def decoder(self) -> Forward:
        return self.base.decoder

    def new_positions(self) -> PositionRule | None:
        return self.base.new_positions()

    def unit_position(self, index: int, time_s: float) -> MediaPosition:
        return self.base.unit_position(index, time_s)

    def open_audio(self, tail: TailPolicy) -> Any:
        return self.base.open_audio(tail)

    def encode_audio(self, chunk: Tensor, state: Any, final: bool) -> AudioOut:
        return self._stream.run(lambda: self.base.encode_audio(chunk, state, final))

    def open_frames(self) -> Any:
        return self.base.open_frames()

    def encode_frames(
        self, frames: Sequence[VideoFrame], state: Any, final: bool
    ) -> tuple[list[VisionUnit], Any]:
        return self._stream.run(lambda: self.base.encode_frames(frames, state, final))

    def encode_still(self, picture: VideoFrame) -> Tensor | None:
        made = self._stream.run(lambda: self.base.encode_still(picture))
        return None if made is None else self._stream.fetch(lambda: made)

    def clip_closing(self) -> Tensor:
        return self._closing

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        return self._stream.fetch(lambda: self.base.project(features, modality))

    def embed_text(self, ids: Sequence[int]) -> Tensor:
        return self.base.embed_text(ids)


def placed(model: StreamModel, place: Place | None) -> StreamModel:
    """`model`, whose encoders' weights are at `place`; None: on the CPU, as ever."""
    return model if place is None else Placed(model, place)
