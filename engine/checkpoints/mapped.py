"""Named tensors inside one mapped file: a tensor costs memory only when it is asked for."""

from __future__ import annotations

import math
import mmap
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from headstart.engine.errors import BadWeights


@dataclass(frozen=True)
class TensorPlace:
    """Where one tensor lies: `start` is its first byte's place in the file."""

    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def byte_count(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class MappedTensors(Mapping[str, Tensor]):
    """Tensors by name; indexing copies that one tensor out of the mapped file."""

    def __init__(self, index: dict[str, TensorPlace], data: mmap.mmap) -> None:
        self._index = index
        self._data = data

    def __getitem__(self, name: str) -> Tensor:
        place = self._index[name]
        if place.byte_count == 0:
            return torch.empty(place.shape, dtype=place.dtype)
        # Through bytes: the formats do not align a tensor to its element size.
        raw = bytearray(self._data[place.start : place.start + place.byte_count])
        return torch.frombuffer(raw, dtype=place.dtype).view(place.shape)

    def view(self, name: str) -> Tensor:
        """The tensor on the mapped pages themselves, where it is aligned: it must not be written
        to, and takes memory only while its pages are looked at."""
        place = self._index[name]
        if place.byte_count == 0 or place.start % place.dtype.itemsize:
            return self[name]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable")
            flat = torch.frombuffer(
                self._data,
                dtype=place.dtype,
                count=math.prod(place.shape),
                offset=place.start,
            )
        return flat.view(place.shape)

    def release(self, name: str) -> None:
        """Give back the pages that only this tensor lies on; looked at, they are read again."""
        place = self._index[name]
        begin = -(-place.start // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (place.start + place.byte_count) // mmap.PAGESIZE * mmap.PAGESIZE - begin
        if length > 0:
            self._data.madvise(mmap.MADV_DONTNEED, begin, length)

    def __contains__(self, name: object) -> bool:
        """Without copying the tensor, as `Mapping`'s own way would."""
        return name in self._index

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
