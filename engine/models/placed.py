"""A model whose encoders lie on a device: their embeddings come to the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headstart.engine.chat.render import Modality
from headstart.engine.device.encoders import EncoderStream
from headstart.engine.device.place import Place
from headstart.engine.device.recorded import CudaRecorder, RecordedPasses, Recorder
from headstart.engine.errors import NoDevice
from headstart.engine.models.perception.interface import (
    AudioOut,
    StreamModel,
    VideoFrame,
    VisionUnit,
)
from headstart.engine.models.perception.wrapper import ModelWrapper


class Placed(ModelWrapper):
    """`base`, whose encoders' weights are at `place`
    (`engine.models.perception.interface.StreamModel`).

    Features stay there, between an encoder and `project`; embeddings do not. On a GPU the passes of
    encoders are CUDA graphs, in memory of their own: `recorded`.
    """

    def __init__(self, base: StreamModel, place: Place, recorder: Recorder | None = None) -> None:
        """`recorder`: None: CUDA graphs on a GPU, and nothing is recorded elsewhere. Raises
        `NoDevice` where there is no room for a pass."""
        super().__init__(base)
        self._stream = EncoderStream(place)
        self._closing = self._stream.fetch(base.clip_closing)
        self.recorded: RecordedPasses | None = None
        if recorder is None and place.is_gpu:
            with place.current():
                recorder = CudaRecorder(place.device)
        if recorder is not None:
            passes = self.recorded = RecordedPasses(recorder)
            try:
                self._stream.run(lambda: base.use_passes(passes))
            except torch.OutOfMemoryError:
                missing = "its memory has no room for a pass of the encoders beside the weights"
                remedy = "use a smaller model, or --encoder-weights int8, which stay on the CPU"
                raise NoDevice(str(place.device), missing, remedy) from None

    def encode_audio(self, chunk: Tensor, state: Any, final: bool) -> AudioOut:
        return self._stream.run(lambda: self.base.encode_audio(chunk, state, final))

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


def placed(model: StreamModel, place: Place | None) -> StreamModel:
    """`model`, whose encoders' weights are at `place`; None: on the CPU, as ever."""
    return model if place is None else Placed(model, place)
