"""Any model with its frames' tokens pooled: fewer for each frame, or for a group of frames.

Stills keep theirs; they are encoded by the model itself. A group's tokens come when it is complete,
or when the clip ends, and have the time of its last frame: with the time of the first, the sound
heard meanwhile would be rolled back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.engine.chat.render import Modality
from headstart.engine.checkpoints.safetensors import read_safetensors
from headstart.engine.config import EngineConfig
from headstart.engine.errors import BadSettings, BadWeights
from headstart.engine.models.checkpoint.directory import Config, ModelDirectory, read_json
from headstart.engine.models.checkpoint.tensors import Checkpoint
from headstart.engine.models.perception.interface import (
    StreamModel,
    VideoFrame,
    VisionUnit,
)
from headstart.engine.models.perception.pooling import (
    Embedded,
    MeanPooling,
    Pooling,
    SimilarityMerging,
)
from headstart.engine.models.perception.query_pooling import PoolerSizes, QueryPooling
from headstart.engine.models.perception.wrapper import ModelWrapper

FILE, SETTINGS = "pooler.safetensors", "pooler.json"
_PREFIXES = ("model.pooler.", "pooler.")


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    unit: Embedded
    max_tokens: int
    time_s: float


@dataclass(frozen=True, slots=True)
class PooledState:
    """`budgets`: of the frames that the model still holds. `waiting`: units of an open group."""

    inner: Any
    budgets: tuple[int, ...] = ()
    waiting: tuple[_Waiting, ...] = ()


class Pooled(ModelWrapper):
    """`base` with the tokens of `group` units of frames pooled to `tokens` by `pooling`
    (`engine.models.perception.interface.StreamModel`).

    `tokens` 0: as many as the frames' `max_tokens` allow. A group has the least of its frames'.
    """

    def __init__(
        self, base: StreamModel, pooling: Pooling, tokens: int = 0, group: int = 1
    ) -> None:
        assert base.spec.vision is not None
        assert group == 1 or tokens, "a group needs a number of tokens"
        super().__init__(base)
        self._pooling, self._tokens, self._group = pooling, tokens, group
        self._per_unit = base.spec.vision.frames_per_unit
        seen = replace(base.spec.vision, frames_per_unit=self._per_unit * group)
        self.spec = replace(base.spec, vision=seen)

    def open_frames(self) -> PooledState:
        return PooledState(self.base.open_frames())

    def encode_frames(
        self, frames: Sequence[VideoFrame], state: PooledState, final: bool
    ) -> tuple[list[VisionUnit], PooledState]:
        units, inner = self.base.encode_frames(frames, state.inner, final)
        budgets = (*state.budgets, *(frame.max_tokens for frame in frames))
        waiting, out = list(state.waiting), []
        for unit in units:
            own, budgets = budgets[: self._per_unit], budgets[self._per_unit :]
            waiting.append(self._embedded(unit, _least(own)))
            if len(waiting) == self._group:
                out.append(self._pool(waiting))
                waiting.clear()
        if final and waiting:
            out.append(self._pool(waiting))
            waiting.clear()
        return out, PooledState(inner, budgets, tuple(waiting))

    def _embedded(self, unit: VisionUnit, max_tokens: int) -> _Waiting:
        vectors = self.base.project(unit.features, Modality.IMAGE)
        embedded = Embedded(vectors, tuple(unit.grid), unit.rows, unit.columns)
        return _Waiting(embedded, max_tokens, unit.time_s)

    def _pool(self, group: Sequence[_Waiting]) -> VisionUnit:
        units = [one.unit for one in group]
        most = _least([self._tokens, *(one.max_tokens for one in group)])
        pooled = units[0]
        if most:
            with torch.inference_mode():
                pooled = self._pooling.pool(units, most)
        return VisionUnit(
            pooled.vectors, pooled.rows, pooled.columns, group[-1].time_s, pooled.cells
        )

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        """Pooled units are projected already."""
        return features if modality is Modality.IMAGE else self.base.project(features, modality)


def _least(budgets: Sequence[int]) -> int:
    """The least of those that limit anything; 0 if none does."""
    return min((budget for budget in budgets if budget), default=0)


def pooled(model: StreamModel, config: EngineConfig) -> StreamModel:
    """`model` with its frames pooled as the settings say. Raises `BadSettings`, or `BadWeights` for
    a learned pooler that is missing or misshapen."""
    way = config.frame_pooling
    if way == "off" or (way == "auto" and model.spec.vision is None):
        return model
    if model.spec.vision is None:
        raise BadSettings("frame_pooling", "auto or off: the model takes no pictures", way)
    if way == "auto":
        return Pooled(model, SimilarityMerging())
    group = config.pooled_frames
    if way == "learned":
        if config.size is not None:
            raise BadSettings("frame_pooling", "another way: a bare size has no pooler", way)
        learned = learned_pooling(Path(config.model).expanduser(), model.spec.decoder.hidden, group)
        return Pooled(model, learned, learned.sizes.queries, group)
    pooling: Pooling = MeanPooling() if way == "mean" else SimilarityMerging()
    return Pooled(model, pooling, config.frame_tokens, group)


def pooled_frame(model: StreamModel, config: EngineConfig) -> int:
    """Tokens that the gateway may ask a frame to become under load; 0: they are as few already, or
    cannot be pooled."""
    by_budget = isinstance(model, Pooled) and config.frame_pooling == "auto"
    return config.frame_tokens if by_budget else 0


def learned_pooling(folder: Path, hidden: int, group: int) -> QueryPooling:
    """The pooler of a model directory: `pooler.safetensors`, or tensors of its checkpoint. Raises
    `BadWeights`."""
    directory = ModelDirectory(folder)
    alone = folder / FILE
    if alone.is_file():
        file = read_safetensors(alone)
        names = {_our_name(stored) or stored: (file, stored) for stored in file}
        tensors = Checkpoint(names, alone, torch.float32)
    else:
        tensors = directory.checkpoint(_our_name, torch.float32)
    sizes = _sizes(tensors, _settings(directory), hidden, group, alone)
    return QueryPooling(tensors, sizes)


def _our_name(stored: str) -> str | None:
    return next((stored.removeprefix(p) for p in _PREFIXES if stored.startswith(p)), None)


def _settings(directory: ModelDirectory) -> Config:
    if (directory.folder / SETTINGS).is_file():
        return read_json(directory.folder / SETTINGS)
    return directory.config.part("pooler_config")


def _sizes(
    tensors: Checkpoint, settings: Config, hidden: int, group: int, path: Path
) -> PoolerSizes:
    if not tensors.has("queries"):
        raise BadWeights(path, "tensor queries", "a learned pooler", "none, nor in the checkpoint")
    shape = tuple(tensors.stored("queries").shape)
    heads = settings.integer("num_attention_heads")
    if len(shape) != 2 or heads < 1 or shape[1] % (4 * heads):
        expected = f"[queries, a multiple of 4 x {heads} heads]"
        raise BadWeights(path, "tensor queries", expected, str(list(shape)))
    return PoolerSizes(hidden, shape[1], shape[0], heads, group)
