"""A text decoder alone, and the base of models that add inputs to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never

import torch
from torch import Tensor

from headstart.engine.chat.render import Modality
from headstart.engine.kvcache.positions import MediaKind, MediaPosition, PositionRule
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.errors import UnsupportedInput
from headstart.engine.models.checkpoint.tensors import Tensors, renamed
from headstart.engine.models.checkpoint.text_config import decoder_spec
from headstart.engine.models.decoder.choice import Build, in_torch
from headstart.engine.models.perception.interface import (
    AudioOut,
    ClipTokens,
    ModelSpec,
    TailPolicy,
    VideoFrame,
    VisionUnit,
)
from headstart.engine.models.perception.layouts import TokenRuns
from headstart.engine.models.perception.passes import Passes

FAMILIES = ("qwen2", "llama", "mistral")


def our_name(stored: str) -> str | None:
    """Our name of a stored tensor; None if it is not used."""
    return renamed(stored, {"model.": "decoder.", "lm_head.": "lm_head."})


class NoLayout:
    """Layout of a model without audio and vision."""

    def clip(self, clip: ClipTokens, tail: TailPolicy) -> TokenRuns:
        raise UnsupportedInput("this model", "sound or pictures")

    def image(self, ids: Sequence[int]) -> TokenRuns:
        raise UnsupportedInput("this model", "pictures")

    def unit(self, ids: Sequence[int], rows: Sequence[int]) -> list[int]:
        raise UnsupportedInput("this model", "pictures")


class TextModel:
    """Llama, Mistral or Qwen2 with plain positions: a `StreamModel`
    (`engine.models.perception.interface`)."""

    layout: Any = NoLayout()

    def __init__(self, tensors: Tensors, config: Config, build: Build = in_torch) -> None:
        """Raises `BadWeights` naming what is missing or misshapen."""
        spec = decoder_spec(config)
        self.decoder = build(tensors, spec, ())
        self.spec = ModelSpec(config.text("model_type", "qwen2"), spec)

    def new_positions(self) -> PositionRule | None:
        return None

    def unit_position(self, index: int, time_s: float) -> MediaPosition:
        return MediaPosition(MediaKind.IMAGE)

    def open_audio(self, tail: TailPolicy) -> Any:
        self._refuse("sound")

    def encode_audio(self, chunk: Tensor, state: Any, final: bool) -> AudioOut:
        self._refuse("sound")

    def open_frames(self) -> Any:
        self._refuse("pictures")

    def encode_frames(
        self, frames: Sequence[VideoFrame], state: Any, final: bool
    ) -> tuple[list[VisionUnit], Any]:
        self._refuse("pictures")

    def encode_still(self, picture: VideoFrame) -> Tensor | None:
        return None

    def clip_closing(self) -> Tensor:
        return torch.empty((0, self.spec.decoder.hidden))

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        self._refuse(modality.name.lower())

    def embed_text(self, ids: Sequence[int]) -> Tensor:
        return self.decoder.embed(torch.tensor(list(ids), dtype=torch.int64))

    def use_passes(self, passes: Passes) -> None:
        """It has no encoders."""

    def _refuse(self, what: str) -> Never:
        raise UnsupportedInput(self.spec.family, what)
