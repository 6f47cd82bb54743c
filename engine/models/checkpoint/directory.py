"""A published model directory: config.json, safetensors and a tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from headstart.engine.checkpoints.mapped import MappedTensors
from headstart.engine.checkpoints.safetensors import read_safetensors
from headstart.engine.errors import BadWeights
from headstart.engine.models.checkpoint.quantised import refuse_by_config, refuse_by_names
from headstart.engine.models.checkpoint.tensors import Checkpoint

Rename = Callable[[str], str | None]  # a stored tensor's name to ours; None: not ours

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
SHARDS = "model-*-of-*.safetensors"


class Config:
    """A JSON object with typed access to its fields; `at` is its path, for errors."""

    def __init__(self, path: Path, values: Mapping[str, Any], at: str = "") -> None:
        self.path, self.values, self._at = path, values, at

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def integer(self, key: str, default: int | None = None) -> int:
        """Raises `BadWeights` when missing (without `default`) or of another type."""
        return int(self._get(key, int, default))

    def number(self, key: str, default: float | None = None) -> float:
        return float(self._get(key, (int, float), default))

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._get(key, bool, default))

    def text(self, key: str, default: str | None = None) -> str:
        return str(self._get(key, str, default))

    def numbers(self, key: str, default: list[float] | None = None) -> tuple[float, ...]:
        return tuple(self._get(key, list, default))

    def part(self, key: str) -> Config:
        """A nested object. Raises `BadWeights` if there is none."""
        return Config(self.path, self._get(key, dict, None), f"{self._at}{key}.")

    def _get(self, key: str, kind: type | tuple[type, ...], default: object) -> Any:
        value = self.values.get(key)
        if value is None:
            value = default
        if not isinstance(value, kind):
            wanted = getattr(kind, "__name__", "number")
            raise BadWeights(self.path, f"field {self._at}{key}", f"a {wanted}", repr(value))
        return value


def read_json(path: Path) -> Config:
    """Raises `BadWeights` if there is no such file, or it is not a JSON object."""
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise BadWeights(path, "file", "a file", "none") from error
    except ValueError as error:
        raise BadWeights(path, "content", "JSON", str(error)) from error
    if not isinstance(values, dict):
        raise BadWeights(path, "content", "a JSON object", type(values).__name__)
    return Config(path, values)


class ModelDirectory:
    """The files of one model. Raises `BadWeights` naming the file, field or tensor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = read_json(folder / "config.json")

    @property
    def model_type(self) -> str:
        return self.config.text("model_type")

    def optional(self, name: str) -> Config | None:
        """An optional JSON file of the model."""
        path = self.folder / name
        return read_json(path) if path.exists() else None

    def checkpoint(
        self,
        rename: Rename,
        dtype: torch.dtype,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Checkpoint:
        """All tensors under the names that `rename` gives them (None: not used). `progress`
        receives bytes taken and bytes in all, as stored. Raises `QuantisedWeights`."""
        refuse_by_config(self.config.path, self.config.values)
        names: dict[str, tuple[MappedTensors, str]] = {}
        total_bytes = 0
        for file, path in self._files():
            refuse_by_names(path, file)
            total_bytes += path.stat().st_size
            for stored in file:
                name = rename(stored)
                if name is None:
                    continue
                if name in names:
                    what = f"tensor {stored}"
                    raise BadWeights(path, what, f"{name} once", "it twice under different names")
                names[name] = (file, stored)
        return Checkpoint(names, self.folder, dtype, lambda taken: progress(taken, total_bytes))

    def _files(self) -> list[tuple[MappedTensors, Path]]:
        index = self.folder / INDEX
        if index.exists():
            shards = sorted(set(read_json(index).part("weight_map").values.values()))
        else:
            shards = [SINGLE]
            alone = next(self.folder.glob(SHARDS), None)
            if alone is not None and not (self.folder / SINGLE).exists():
                raise BadWeights(index, "file", f"a file beside {alone.name}", "none")
        paths = [self.folder / name for name in shards]
        for path in paths:
            if path.parent != self.folder or not path.is_file():
                raise BadWeights(path, "file", "a file", "none")
        return [(read_safetensors(path), path) for path in paths]
