"""A model around another one: what a subclass does not change is the other's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from headstart.engine.chat.render import Modality
from headstart.engine.decoder.decoder import Forward
from headstart.engine.kvcache.positions import MediaPosition, PositionRule
from headstart.engine.models.perception.interface import (
    AudioOut,
    LayoutRule,
    ModelSpec,
    StreamModel,
    TailPolicy,
    VideoFrame,
    VisionUnit,
)
from headstart.engine.models.perception.passes import Passes


class ModelWrapper:
    """`base`, a `headstart.engine.models.perception.interface.StreamModel`, and one itself."""

    def __init__(self, base: StreamModel) -> None:
        self.base = base
        self.spec: ModelSpec = base.spec

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
        return self.base.encode_audio(chunk, state, final)

    def open_frames(self) -> Any:
        return self.base.open_frames()

    def encode_frames(
        self, frames: Sequence[VideoFrame], state: Any, final: bool
    ) -> tuple[list[VisionUnit], Any]:
        return self.base.encode_frames(frames, state, final)

    def encode_still(self, picture: VideoFrame) -> Tensor | None:
        return self.base.encode_still(picture)

    def clip_closing(self) -> Tensor:
        return self.base.clip_closing()

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        return self.base.project(features, modality)

    def embed_text(self, ids: Sequence[int]) -> Tensor:
        return self.base.embed_text(ids)

    def use_passes(self, passes: Passes) -> None:
        self.base.use_passes(passes)
