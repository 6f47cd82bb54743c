"""Qwen2-VL: video in pairs of frames, one time step each; no audio."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headstart.engine.chat.render import Modality
from headstart.engine.kvcache.positions import MediaKind, MediaPosition
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.tensors import Scope, Tensors, renamed
from headstart.engine.models.checkpoint.text_config import decoder_spec, rope_sections
from headstart.engine.models.decoder.choice import Build, in_torch
from headstart.engine.models.perception.frames import FrameState, QwenVision, vision_spec
from headstart.engine.models.perception.interface import ModelSpec, VideoFrame, VisionUnit
from headstart.engine.models.perception.layouts import VideoLayout
from headstart.engine.models.perception.passes import Passes
from headstart.engine.models.perception.tmrope import Delimiters, TmRope
from headstart.engine.models.perception.vision_tower import (
    Generation,
    VisionTower,
    VisionTowerSizes,
)
from headstart.engine.models.text import TextModel

FAMILY = "qwen2_vl"

# Tensor prefixes of the versions that write checkpoints; the first match counts.
_LAYOUTS = {
    "model.visual.": "vision.",
    "visual.": "vision.",
    "model.language_model.": "decoder.",
    "model.": "decoder.",
    "lm_head.": "lm_head.",
}


def our_name(stored: str) -> str | None:
    """Our name of a stored tensor; None if it is not used."""
    return renamed(stored, _LAYOUTS)


def vision_sizes(vision: Config) -> VisionTowerSizes:
    """Of a config.json's `vision_config`, with the published defaults."""
    width = vision.integer("embed_dim", 1280)
    return VisionTowerSizes(
        depth=vision.integer("depth", 32),
        width=width,
        heads=vision.integer("num_heads", 16),
        ffn=int(width * vision.number("mlp_ratio", 4)),
        output=vision.integer("hidden_size"),
        patch_px=vision.integer("patch_size", 14),
        merge=vision.integer("spatial_merge_size", 2),
        frames=vision.integer("temporal_patch_size", 2),
    )


class Qwen2Vl(TextModel):
    """`headstart.engine.models.perception.interface.StreamModel` with vision."""

    family = FAMILY

    def __init__(
        self,
        tensors: Tensors,
        config: Config,
        *,
        answer_opening: Sequence[int] = (),
        preprocessor: Config | None = None,
        build: Build = in_torch,
    ) -> None:
        """Raises `BadWeights` naming what is missing or misshapen."""
        text = config.part("text_config") if "text_config" in config else config
        spec = decoder_spec(text, tied_default=config.flag("tie_word_embeddings", False))
        tower = self._tower(Scope(tensors, "vision."), config.part("vision_config"))
        seen = vision_spec(tower.sizes, preprocessor)
        self.vision = QwenVision(tower, seen, preprocessor)
        self.decoder = build(tensors, spec, rope_sections(text))
        self.spec = ModelSpec(self.family, spec, vision=seen)
        self.delimiters = Delimiters(
            vision_bos=config.integer("vision_start_token_id", 151652),
            vision_eos=config.integer("vision_end_token_id", 151653),
            answer_opening=tuple(answer_opening),
        )
        self.layout = VideoLayout((self.delimiters.vision_bos,), (self.delimiters.vision_eos,))

    def _tower(self, tensors: Tensors, vision: Config) -> VisionTower:
        return VisionTower(tensors, vision_sizes(vision), Generation.QWEN2_VL)

    def use_passes(self, passes: Passes) -> None:
        self.vision.tower.passes = passes

    def new_positions(self) -> TmRope:
        return TmRope(self.delimiters)

    def unit_position(self, index: int, time_s: float) -> MediaPosition:
        return MediaPosition(MediaKind.VIDEO, index)

    def open_frames(self) -> FrameState:
        return FrameState()

    def encode_frames(
        self, frames: Sequence[VideoFrame], state: FrameState, final: bool
    ) -> tuple[list[VisionUnit], FrameState]:
        with torch.inference_mode():
            return self.vision.encode(frames, state, final)

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        with torch.inference_mode():
            return self.vision.tower.project(features)
