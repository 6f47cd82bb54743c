"""Frame input of Qwen's vision encoders, which take frames in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.perception.interface import VideoFrame, VisionSpec, VisionUnit
from headstart.engine.models.perception.pixels import (
    CLIP_MEAN,
    CLIP_STD,
    Normalisation,
    patches,
    stack,
)
from headstart.engine.models.perception.vision_tower import VisionTower, VisionTowerSizes

# Pixels per frame if the preprocessor settings do not say: 128 and 768 tokens.
MIN_PIXELS, MAX_PIXELS = 128 * 28 * 28, 768 * 28 * 28


@dataclass(frozen=True, slots=True)
class FrameState:
    """Frames of an incomplete unit."""

    waiting: tuple[VideoFrame, ...] = ()


def vision_spec(sizes: VisionTowerSizes, preprocessor: Config | None) -> VisionSpec:
    """The encoder's input sizes; pixel budgets from preprocessor_config.json, if given."""
    least, most = MIN_PIXELS, MAX_PIXELS
    if preprocessor is not None:
        least = preprocessor.integer("min_pixels", least)
        most = preprocessor.integer("max_pixels", most)
    return VisionSpec(sizes.side_px, sizes.frames, least, most)


class QwenVision:
    """A vision tower with its preprocessing."""

    def __init__(
        self, tower: VisionTower, spec: VisionSpec, preprocessor: Config | None = None
    ) -> None:
        self.tower, self.spec = tower, spec
        mean: tuple[float, ...] = CLIP_MEAN
        std: tuple[float, ...] = CLIP_STD
        if preprocessor is not None:
            mean = preprocessor.numbers("image_mean", list(mean))
            std = preprocessor.numbers("image_std", list(std))
        self._normalise = Normalisation(mean, std)

    def encode(
        self, frames: Sequence[VideoFrame], state: FrameState, final: bool
    ) -> tuple[list[VisionUnit], FrameState]:
        """As `StreamModel.encode_frames`; with `final`, a lone last frame is repeated."""
        waiting = [*state.waiting, *frames]
        per_unit = self.spec.frames_per_unit
        units = []
        while len(waiting) >= per_unit:
            units.append(self._unit(waiting[:per_unit]))
            del waiting[:per_unit]
        if final and waiting:
            units.append(self._unit(waiting + waiting[-1:] * (per_unit - len(waiting))))
            waiting.clear()
        return units, FrameState(tuple(waiting))

    def patches(self, frames: Sequence[VideoFrame]) -> tuple[Tensor, int, int]:
        """One unit's patches, and the rows and columns of its merged grid."""
        sizes = self.tower.sizes
        pixels = stack([frame.rgb for frame in frames], self.spec, self._normalise)
        rows, columns = (side // sizes.side_px for side in pixels.shape[2:])
        return patches(pixels, sizes.patch_px, sizes.merge), rows, columns

    def _unit(self, frames: Sequence[VideoFrame]) -> VisionUnit:
        values, rows, columns = self.patches(frames)
        features = self.tower.encode(values, rows, columns)
        return VisionUnit(features, rows, columns, frames[0].time_s)
