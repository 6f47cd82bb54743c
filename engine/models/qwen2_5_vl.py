"""Qwen2.5-VL: Qwen2-VL with the vision encoder of Qwen2.5 (windowed attention), and time positions
that count seconds rather than frames."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.engine.kvcache.positions import MediaKind, MediaPosition
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.engine.models.decoder.choice import Build, in_torch
from headstart.engine.models.perception.vision_tower import Generation, VisionTower
from headstart.engine.models.qwen2_5_omni import vision_sizes
from headstart.engine.models.qwen2_vl import Qwen2Vl

FAMILY = "qwen2_5_vl"


class Qwen25Vl(Qwen2Vl):
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
        super().__init__(
            tensors,
            config,
            answer_opening=answer_opening,
            preprocessor=preprocessor,
            build=build,
        )
        self.ids_per_second = config.part("vision_config").number("tokens_per_second", 4)

    def _tower(self, tensors: Tensors, vision: Config) -> VisionTower:
        return VisionTower(tensors, vision_sizes(vision), Generation.QWEN2_5_VL)

    def unit_position(self, index: int, time_s: float) -> MediaPosition:
        return MediaPosition(MediaKind.VIDEO, int(time_s * self.ids_per_second))
