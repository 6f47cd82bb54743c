"""LLaVA-OneVision: SigLIP encodes frames one by one, pooled to a quarter; a plain Qwen2 decodes.

Live frames are video frames (196 tokens each). A still is the whole picture and tiles of it at full
resolution (`headstart.engine.models.perception.anyres`), up to 7,300 tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine.chat.render import Modality
from headstart.engine.decoder.layers import compute_dtype
from headstart.engine.kvcache.positions import MediaKind, MediaPosition
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.tensors import Scope, Tensors, renamed
from headstart.engine.models.decoder.choice import Build, in_torch
from headstart.engine.models.perception.anyres import Anyres
from headstart.engine.models.perception.frames import FrameState
from headstart.engine.models.perception.interface import (
    ModelSpec,
    VideoFrame,
    VisionSpec,
    VisionUnit,
)
from headstart.engine.models.perception.layouts import VideoLayout
from headstart.engine.models.perception.llava_projector import LlavaProjector, layers_run
from headstart.engine.models.perception.passes import Passes
from headstart.engine.models.perception.pixels import Normalisation, resize
from headstart.engine.models.perception.siglip import Siglip, SiglipSizes
from headstart.engine.models.text import TextModel

FAMILY = "llava_onevision"
_HALF = (0.5, 0.5, 0.5)

# Tensor prefixes of the versions that write checkpoints; the first match counts.
_LAYOUTS = {
    "model.vision_tower.vision_model.": "vision.",
    "vision_tower.vision_model.": "vision.",
    "model.vision_tower.": "vision.",
    "vision_tower.": "vision.",
    "model.multi_modal_projector.": "projector.",
    "multi_modal_projector.": "projector.",
    "model.image_newline": "image_newline",
    "image_newline": "image_newline",
    "language_model.model.": "decoder.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "decoder.",
    "lm_head.": "lm_head.",
}


def our_name(stored: str) -> str | None:
    """Our name of a stored tensor; None if it is not used."""
    return renamed(stored, _LAYOUTS)


def vision_sizes(vision: Config) -> SiglipSizes:
    """Of a config.json's `vision_config`, with the published defaults."""
    return SiglipSizes(
        width=vision.integer("hidden_size", 1152),
        layers=vision.integer("num_hidden_layers", 26),
        heads=vision.integer("num_attention_heads", 14),
        ffn=vision.integer("intermediate_size", 4304),
        image_px=vision.integer("image_size", 384),
        patch_px=vision.integer("patch_size", 14),
        eps=vision.number("layer_norm_eps", 1e-6),
    )


class LlavaOnevision(TextModel):
    """`headstart.engine.models.perception.interface.StreamModel` with vision."""

    def __init__(
        self,
        tensors: Tensors,
        config: Config,
        *,
        preprocessor: Config | None = None,
        build: Build = in_torch,
    ) -> None:
        """Raises `BadWeights` naming what is missing or misshapen."""
        super().__init__(tensors, config.part("text_config"), build)
        sizes = vision_sizes(config.part("vision_config"))
        layers = layers_run(config, sizes.layers)
        self.tower = Siglip(Scope(tensors, "vision."), sizes, layers)
        hidden = self.spec.decoder.hidden
        self._embedded = LlavaProjector(Scope(tensors, "projector."), sizes.width, hidden)
        newline = tensors.take("image_newline", hidden)
        self._newline = newline.to(compute_dtype(newline.dtype))[None]
        mean: tuple[float, ...] = _HALF
        std: tuple[float, ...] = _HALF
        if preprocessor is not None:
            mean = preprocessor.numbers("image_mean", list(mean))
            std = preprocessor.numbers("image_std", list(std))
        self._normalise = Normalisation(mean, std)
        self.anyres = Anyres.of(config, sizes.image_px, sizes.side)
        pixels = sizes.image_px**2
        seen = VisionSpec(
            sizes.image_px, 1, min_pixels=pixels, max_pixels=pixels, tiled=self.anyres.still
        )
        self.spec = ModelSpec(FAMILY, self.spec.decoder, vision=seen)
        self.layout = VideoLayout()

    def unit_position(self, index: int, time_s: float) -> MediaPosition:
        return MediaPosition(MediaKind.VIDEO, index)

    def use_passes(self, passes: Passes) -> None:
        self.tower.passes = passes

    def open_frames(self) -> FrameState:
        return FrameState()

    def pixels(self, frames: Sequence[VideoFrame]) -> Tensor:
        """[n, 3, image_px, image_px], normalised."""
        side = self.tower.sizes.image_px
        return self._normalise(torch.stack([resize(frame.rgb, side, side) for frame in frames]))

    def encode_frames(
        self, frames: Sequence[VideoFrame], state: FrameState, final: bool
    ) -> tuple[list[VisionUnit], FrameState]:
        if not frames:
            return [], state
        with torch.inference_mode():
            features = self.tower.encode(self.pixels(frames))
        side = math.ceil(self.tower.sizes.side / 2)
        return [
            VisionUnit(seen, side, side, frame.time_s)
            for seen, frame in zip(features, frames, strict=True)
        ], state

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        """[side ** 2, width] of one frame -> [pooled, hidden]."""
        with torch.inference_mode():
            side = self.tower.sizes.side
            grid = self._embedded(features).T.reshape(1, -1, side, side)
            half = math.ceil(side / 2)
            pooled = F.interpolate(grid, (half, half), mode="bilinear")
            return pooled[0].flatten(1).T.contiguous()

    def encode_still(self, picture: VideoFrame) -> Tensor:
        with torch.inference_mode():
            # One tile at a time: 729 patches fill the cores, and 37 tiles would take 500 MB.
            tiles = self.tiles(picture)
            seen = torch.cat([self._embedded(self.tower.encode(tile[None])) for tile in tiles])
            return self.anyres.join(seen, picture.rgb.shape[:2], self._newline)

    def tiles(self, picture: VideoFrame) -> Tensor:
        """Tiles of a still, normalised: [1 + tiles, 3, image_px, image_px]."""
        return self._normalise(self.anyres.cut(picture.rgb))

    def clip_closing(self) -> Tensor:
        return self._newline
