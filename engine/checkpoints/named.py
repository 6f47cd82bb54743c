"""Named tensors and JSON files of a checkpoint, with errors that name what was expected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from headstart.engine.errors import BadWeights


class Tensors:
    """Tensors by name, of the file `path`."""

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        self.path = path
        self._tensors = tensors

    def __getitem__(self, name: str) -> Tensor:
        """Raises `BadWeights` for a name that is missing."""
        if name not in self._tensors:
            raise BadWeights(self.path, "tensors", name, "no such tensor")
        return self._tensors[name]

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def shape(self, name: str, axes: int) -> tuple[int, ...]:
        """The tensor's shape. Raises `BadWeights` also for another number of axes."""
        shape = tuple(self[name].shape)
        if len(shape) != axes:
            raise BadWeights(self.path, name, f"{axes} axes", str(list(shape)))
        return shape

    def count(self, pattern: str) -> int:
        """The number n for which pattern.format(0) to pattern.format(n - 1) all exist."""
        n = 0
        while pattern.format(n) in self._tensors:
            n += 1
        return n


def read_json(path: Path) -> dict[str, Any]:
    """Read a file with one JSON object. Raises `BadWeights`."""
    value = read_json_value(path)
    if not isinstance(value, dict):
        raise BadWeights(path, "content", "a JSON object", type(value).__name__)
    return value


def read_json_value(path: Path) -> Any:
    """Read a JSON file. Raises `BadWeights`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # not JSON, or not UTF-8
        raise BadWeights(path, "content", "JSON", str(error)) from error


def whole_numbers(path: Path, config: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """The list of integers under `key`, empty if there is none. Raises `BadWeights`."""
    value = config.get(key) or []
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise BadWeights(path, key, "a list of whole numbers", _short(value))
    return tuple(value)


def pairs(path: Path, config: Mapping[str, Any], key: str) -> tuple[tuple[int, int], ...]:
    """The list of integer pairs under `key`, empty if there is none. Raises `BadWeights`."""
    value = config.get(key) or []
    good = isinstance(value, list) and all(
        isinstance(pair, list) and [type(n) for n in pair] == [int, int] for pair in value
    )
    if not good:
        raise BadWeights(path, key, "a list of pairs of whole numbers", _short(value))
    return tuple((first, second) for first, second in value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
