"""A decoder by itself: what a model without senses is, and what those with senses stand on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never

import torch
from torch import Tensor

from engine.layout import Modality
from engine.models.decoders import Build, in_torch
from engine.models.directory import Config
from engine.models.errors import UnsupportedInput
from engine.models.interface import (
    AudioOut,
    Clip,
    Frame,
    ModelSpec,
    TailPolicy,
    VisionUnit,
)
from engine.models.layouts import Parts
from engine.models.tensors import Tensors, renamed
from engine.models.text_config import decoder_spec
from engine.positions import Place, PlaceKind, PositionRule

FAMILIES = ("qwen2", "llama")


def our_name(stored: str) -> str | None:
    """A stored tensor's name as we ask for it."""
    return renamed(stored, {"model.": "decoder.", "lm_head.": "lm_head."})


class NoLayout:
    """Of a model without senses."""

    def clip(self, clip: Clip, tail: TailPolicy) -> Parts:
        raise UnsupportedInput("this model", "sound or pictures")

    def image(self, ids: Sequence[int]) -> Parts:
        raise UnsupportedInput("this model", "pictures")


class TextModel:
    """Llama or Qwen2 on plain positions (`engine.models.interface.StreamModel`)."""

    layout: Any = NoLayout()

    def __init__(self, tensors: Tensors, config: Config, build: Build = in_torch) -> None:
        """Raises `BadWeights` naming what is missing or misshapen."""
        spec = decoder_spec(config)
        self.decoder = build(tensors, spec, ())
        self.spec = ModelSpec(config.text("model_type", "qwen2"), spec)

    def new_positions(self) -> PositionRule | None:
        return None

    def shot_place(self, index: int, time_s: float) -> Place:
        return Place(PlaceKind.IMAGE)

    def open_audio(self, tail: TailPolicy) -> Any:
        self._refuse("sound")

    def encode_audio(self, chunk: Tensor, state: Any, final: bool) -> AudioOut:
        self._refuse("sound")

    def open_frames(self) -> Any:
        self._refuse("pictures")

    def encode_frames(
        self, frames: Sequence[Frame], state: Any, final: bool
    ) -> tuple[list[VisionUnit], Any]:
        self._refuse("pictures")

    def encode_still(self, picture: Frame) -> Tensor | None:
        return None

    def clip_closing(self) -> Tensor:
        return torch.empty((0, self.spec.decoder.hidden))

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        self._refuse(modality.name.lower())

    def embed_text(self, ids: Sequence[int]) -> Tensor:
        return self.decoder.embed(torch.tensor(list(ids), dtype=torch.int64))

    def _refuse(self, what: str) -> Never:
        raise UnsupportedInput(self.spec.family, what)
