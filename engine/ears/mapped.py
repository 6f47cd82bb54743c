"""Named tensors inside one mapped file: a tensor costs memory only when it is asked for."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine.errors import BadWeights


@dataclass(frozen=True)
class Place:
    """Where one tensor lies: `start` is its first byte's place in the file."""

    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def byte_count(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class MappedTensors(Mapping[str, Tensor]):
    """Tensors by name; indexing copies that one tensor out of the mapped file."""

    def __init__(self, index: dict[str, Place], data: mmap.mmap) -> None:
        self._index = index
        self._data = data

    def __getitem__(self, name: str) -> Tensor:
        place = self._index[name]
        if place.byte_count == 0:
            return torch.empty(place.shape, dtype=place.dtype)
        # Through bytes: the formats do not align a tensor to its element size.
        raw = bytearray(self._data[place.start : place.start + place.byte_count])
        return torch.frombuffer(raw, dtype=place.dtype).view(place.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


def map_file(path: Path) -> mmap.mmap:
    """The file's bytes, read as they are touched. Raises `BadWeights` when it is empty."""
    if path.stat().st_size == 0:
        raise BadWeights(path, "size", "a model", "an empty file")
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
