"""Description of a model directory from its headers: `headstart models info DIR`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.engine.errors import EngineError
from headstart.engine.kvcache.storage import kv_bytes_per_token
from headstart.engine.models.checkpoint.directory import ModelDirectory, Rename
from headstart.engine.models.checkpoint.tensors import Checkpoint
from headstart.engine.models.checkpoint.words import words_of
from headstart.engine.models.families import Loading, family_of, load
from headstart.engine.models.perception.interface import StreamModel
from headstart.engine.models.source import checked

_SHOWN = 20


@dataclass(slots=True)
class Survey:
    """Collects what is asked of a directory's tensors while a model is built without data."""

    wrong: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    parameters: int = 0
    dtypes: Counter[str] = field(default_factory=Counter)
    _checkpoints: list[Checkpoint] = field(default_factory=list)

    def open(self, directory: ModelDirectory, rename: Rename) -> SurveyedTensors:
        checkpoint = directory.checkpoint(rename, torch.bfloat16)
        self._checkpoints.append(checkpoint)
        return SurveyedTensors(self, checkpoint)

    def close(self) -> None:
        """Record the tensors that the finished model did not use."""
        for checkpoint in self._checkpoints:
            self.unused += sorted(checkpoint.left)


@dataclass(frozen=True, slots=True)
class SurveyedTensors:
    """`headstart.engine.models.checkpoint.tensors.Tensors` without data, recorded in a `Survey`."""

    survey: Survey
    checkpoint: Checkpoint

    def has(self, name: str) -> bool:
        return self.checkpoint.has(name)

    def copied(self, name: str) -> None:
        """Nothing to release."""

    def take(self, name: str, *shape: int) -> Tensor:
        survey = self.survey
        if not self.has(name):
            survey.wrong.append(f"{name} {list(shape)}: missing")
        else:
            stored = self.checkpoint.stored(name)
            if tuple(stored.shape) != shape:
                survey.wrong.append(f"{name} {list(shape)}: stored as {list(stored.shape)}")
            survey.dtypes[str(stored.dtype).removeprefix("torch.")] += stored.numel()
            survey.parameters += stored.numel()
            self.checkpoint.taken.add(name)
        return torch.empty(shape, dtype=torch.bfloat16, device="meta")


def describe(folder: Path) -> dict[str, Any]:
    """Family, sizes, dtypes and faults. Raises `BadWeights` for a directory from which no model can
    be built at all."""
    folder = checked(folder)
    family = family_of(ModelDirectory(folder))
    survey = Survey()
    model = load(folder, Loading(tensors=survey.open))
    survey.close()
    return {
        "name": folder.name,
        "family": family,
        "parameters": survey.parameters,
        "stored": dict(survey.dtypes.most_common()),
        "stored_bytes": sum(path.stat().st_size for path in folder.glob("*.safetensors")),
        **_sizes(model),
        "words": _words(folder),
        "wrong": survey.wrong[:_SHOWN],
        "wrong_count": len(survey.wrong),
        "unused": survey.unused[:_SHOWN],
    }


def _sizes(model: StreamModel) -> dict[str, Any]:
    spec, heard, seen = model.spec.decoder, model.spec.audio, model.spec.vision
    per_token = kv_bytes_per_token(spec.layers, spec.kv_heads, spec.head_dim, "fp32")
    return {
        "decoder": f"{spec.layers} layers of {spec.hidden}, {spec.heads} heads on {spec.kv_heads}",
        "vocabulary": spec.vocab_size,
        "context_tokens": spec.context_tokens,
        "kv_bytes_per_token": per_token,
        "hears": heard and f"units of {heard.unit_ms} ms, {heard.unit_tokens} tokens each",
        "sees": seen and f"{seen.frames_per_unit} frames at a time, sides of {seen.side_px} px",
    }


def _words(folder: Path) -> str:
    try:
        tokenizer, _ = words_of(folder)
    except EngineError as error:
        return str(error)
    return f"tokenizer of {tokenizer.vocab_size} tokens, chat template"
