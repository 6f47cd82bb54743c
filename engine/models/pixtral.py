"""Pixtral: pictures at their own size and shape, a token for each patch; a Mistral decodes.

A picture is laid out row by row. `[IMG_BREAK]` ends each row but the last, which `[IMG_END]` ends:
    cell cell cell [IMG_BREAK] cell cell cell [IMG_END]

Stills have up to 4,096 patches. Camera frames are scaled down to `FRAME_PIXELS`, since the model
merges no patches. A video is a sequence of pictures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from headstart.engine.chat.render import Modality
from headstart.engine.errors import BadWeights, UnsupportedModel
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.tensors import Scope, Tensors, renamed
from headstart.engine.models.checkpoint.words import TOKENIZER
from headstart.engine.models.decoder.choice import Build, in_torch
from headstart.engine.models.perception.frames import FrameState
from headstart.engine.models.perception.interface import (
    ModelSpec,
    StillSpec,
    VideoFrame,
    VisionSpec,
    VisionUnit,
)
from headstart.engine.models.perception.layouts import RowLayout
from headstart.engine.models.perception.llava_projector import LlavaProjector, layers_run
from headstart.engine.models.perception.passes import Passes
from headstart.engine.models.perception.pixels import CLIP_MEAN, CLIP_STD, Normalisation, resize
from headstart.engine.models.perception.pixtral_tower import (
    ACTIVATIONS,
    PixtralSizes,
    PixtralTower,
    fit_edge,
)
from headstart.engine.models.text import TextModel

FAMILY = "pixtral"
MODEL_TYPE = "llava"
"""The `model_type` of its config.json, which other models have too: `vision_config` names ours."""

LONGEST_PX = 1024
FRAME_PIXELS = 256 * 256
"""Of a camera frame: 256 patches, 272 tokens with their row ends."""

# Tensor prefixes of the versions that write checkpoints; the first match counts.
_LAYOUTS = {
    "model.vision_tower.": "vision.",
    "vision_tower.": "vision.",
    "model.multi_modal_projector.": "projector.",
    "multi_modal_projector.": "projector.",
    "language_model.model.": "decoder.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "decoder.",
    "lm_head.": "lm_head.",
}


class RowTokens(NamedTuple):
    """Ids of `[IMG_BREAK]` and `[IMG_END]`; as published, if there is no tokenizer to ask."""

    row_end: int = 12
    picture_end: int = 13


def our_name(stored: str) -> str | None:
    """Our name of a stored tensor; None if it is not used."""
    return renamed(stored, _LAYOUTS)


def row_tokens(folder: Path) -> RowTokens:
    """The ids in the tokenizer of `folder`. Raises `BadWeights` if it lacks them."""
    path = folder / TOKENIZER
    if not path.exists():
        return RowTokens()
    try:
        ids = {
            token["content"]: int(token["id"])
            for token in json.loads(path.read_bytes())["added_tokens"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise BadWeights(path, "content", "a tokenizer", repr(error)) from error
    missing = [name for name in ("[IMG_BREAK]", "[IMG_END]") if name not in ids]
    if missing:
        raise BadWeights(path, "added tokens", "[IMG_BREAK] and [IMG_END]", f"no {missing[0]}")
    return RowTokens(ids["[IMG_BREAK]"], ids["[IMG_END]"])


def vision_sizes(vision: Config) -> PixtralSizes:
    """Raises `UnsupportedModel` for another encoder than Pixtral's."""
    kind = vision.text("model_type", "clip_vision_model")
    if kind != FAMILY:
        raise UnsupportedModel(vision.path, "vision_config.model_type", [FAMILY], kind)
    activation = vision.text("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise UnsupportedModel(vision.path, "hidden_act", list(ACTIVATIONS), activation)
    rope = vision.part("rope_parameters") if "rope_parameters" in vision else vision
    return PixtralSizes(
        width=vision.integer("hidden_size", 1024),
        layers=vision.integer("num_hidden_layers", 24),
        heads=vision.integer("num_attention_heads", 16),
        ffn=vision.integer("intermediate_size", 4096),
        patch_px=vision.integer("patch_size", 16),
        rope_base=rope.number("rope_theta", 10_000.0),
        activation=activation,
    )


class Pixtral(TextModel):
    """`headstart.engine.models.perception.interface.StreamModel` with vision."""

    def __init__(
        self,
        tensors: Tensors,
        config: Config,
        *,
        rows: RowTokens | None = None,
        preprocessor: Config | None = None,
        build: Build = in_torch,
    ) -> None:
        """Raises `BadWeights` naming what is missing or misshapen, or `UnsupportedModel`."""
        sizes = vision_sizes(config.part("vision_config"))
        if config.text("projector_hidden_act", "gelu") != "gelu":
            got = config.text("projector_hidden_act")
            raise UnsupportedModel(config.path, "projector_hidden_act", ["gelu"], got)
        super().__init__(tensors, config.part("text_config"), build)
        # LLaVA's own default is -2; published Pixtral says -1.
        run = layers_run(config, sizes.layers, default=-2)
        self.tower = PixtralTower(Scope(tensors, "vision."), sizes, run)
        bias = config.flag("multimodal_projector_bias", True)
        hidden = self.spec.decoder.hidden
        self._projector = LlavaProjector(
            Scope(tensors, "projector."), sizes.width, hidden, bias=bias
        )
        self.longest_px = LONGEST_PX
        mean: tuple[float, ...] = CLIP_MEAN
        std: tuple[float, ...] = CLIP_STD
        if preprocessor is not None:
            if "size" in preprocessor:
                self.longest_px = preprocessor.part("size").integer("longest_edge", LONGEST_PX)
            mean = preprocessor.numbers("image_mean", list(mean))
            std = preprocessor.numbers("image_std", list(std))
        self._normalise = Normalisation(mean, std)
        patch = sizes.patch_px**2
        seen = VisionSpec(
            sizes.patch_px,
            1,
            min_pixels=patch,
            max_pixels=FRAME_PIXELS,
            tiled=StillSpec(self.longest_px**2, patch, 1),
        )
        self.spec = ModelSpec(FAMILY, self.spec.decoder, vision=seen)
        self.layout = RowLayout(*(rows or RowTokens()))

    def use_passes(self, passes: Passes) -> None:
        self.tower.passes = passes

    def open_frames(self) -> FrameState:
        return FrameState()

    def pixels(self, frame: VideoFrame) -> Tensor:
        """[3, height, width], normalised, in whole patches."""
        height, width = frame.rgb.shape[:2]
        size = fit_edge(height, width, self.longest_px, self.tower.sizes.patch_px)
        return self._normalise(resize(frame.rgb, *size))

    def encode_frames(
        self, frames: Sequence[VideoFrame], state: FrameState, final: bool
    ) -> tuple[list[VisionUnit], FrameState]:
        with torch.inference_mode():
            return [self._unit(frame) for frame in frames], state

    def _unit(self, frame: VideoFrame) -> VisionUnit:
        pixels, patch_px = self.pixels(frame), self.tower.sizes.patch_px
        rows, columns = (side // patch_px for side in pixels.shape[1:])
        return VisionUnit(self.tower.encode(pixels), rows, columns, frame.time_s)

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        with torch.inference_mode():
            return self._projector(features)
