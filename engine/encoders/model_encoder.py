"""A model's vision as an encoder process runs it: units of pictures in, embeddings out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headstart.engine.api import Image
from headstart.engine.chat.render import Modality
from headstart.engine.encoders.messages import Picture
from headstart.engine.models.perception.clips import encode_pictures
from headstart.engine.models.perception.interface import StreamModel, VideoFrame, VisionUnit
from headstart.engine.models.perception.senses import ModelImageEncoder

Rgb = npt.NDArray[np.uint8]


class ModelEncoder:
    """`headstart.engine.encoders.server.UnitEncoder` over a model that sees."""

    def __init__(self, model: StreamModel) -> None:
        assert model.spec.vision is not None
        self._model = model
        self._sizes = ModelImageEncoder(model)

    def tokens(self, pictures: Sequence[Rgb], *, still: bool) -> int:
        height, width = pictures[0].shape[:2]
        return self._sizes.size(Image(width, height, b""), live=not still)[0]

    def encode(self, units: Sequence[Sequence[Rgb]], *, still: bool) -> list[list[Picture] | None]:
        """As an engine with this model would: live frames of one size may be stacked."""
        if still:
            return [self._still(pictures) for pictures in units]
        if len(units) > 1 and all(len(pictures) == 1 for pictures in units):
            frames = [VideoFrame(rgb) for (rgb,) in units]
            return [
                [Picture(cells, unit.rows, unit.columns) for unit, cells in seen.units]
                for seen in encode_pictures(self._model, frames, live=True)
            ]
        return [self._unit(pictures) for pictures in units]

    def _still(self, pictures: Sequence[Rgb]) -> list[Picture] | None:
        (rgb,) = pictures
        vectors = self._model.encode_still(VideoFrame(rgb))
        return None if vectors is None else [Picture(vectors)]

    def _unit(self, pictures: Sequence[Rgb]) -> list[Picture]:
        model, frames = self._model, [VideoFrame(rgb) for rgb in pictures]
        units, _ = model.encode_frames(frames, model.open_frames(), True)
        return [self._picture(unit) for unit in units]

    def _picture(self, unit: VisionUnit) -> Picture:
        assert unit.cells is None, "frames are pooled by the engine"
        return Picture(self._model.project(unit.features, Modality.IMAGE), unit.rows, unit.columns)
