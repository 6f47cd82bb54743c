"""Named tensors inside one memory-mapped file; a tensor costs memory only when accessed."""

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
class TensorLocation:
    """Location of one tensor; `start` is the offset of its first byte in the file."""

    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def byte_count(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class MappedTensors(Mapping[str, Tensor]):
    """Tensors by name. Indexing copies that tensor out of the mapped file."""

    def __init__(self, index: dict[str, TensorLocation], data: mmap.mmap) -> None:
        self._index = index
        self._data = data

    def __getitem__(self, name: str) -> Tensor:
        location = self._index[name]
        if location.byte_count == 0:
            return torch.empty(location.shape, dtype=location.dtype)
        # Copied, because the formats do not align tensors to their element size.
        with memoryview(self._data) as data:  # whose slices are no copies
            raw = bytearray(data[location.start : location.start + location.byte_count])
        return torch.frombuffer(raw, dtype=location.dtype).view(location.shape)

    def view(self, name: str) -> Tensor:
        """The tensor on the mapped pages themselves, if it is aligned, else a copy. It must not be
        written to, and takes memory only while its pages are accessed."""
        location = self._index[name]
        if location.byte_count == 0 or location.start % location.dtype.itemsize:
            return self[name]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given buffer is not writable")
            flat = torch.frombuffer(
                self._data,
                dtype=location.dtype,
                count=math.prod(location.shape),
                offset=location.start,
            )
        return flat.view(location.shape)

    def are_one(self, one: str, other: str) -> bool:
        """Whether both names are there, and stand for the same bytes."""
        return one in self._index and self._index[one] == self._index.get(other)

    def release(self, name: str) -> None:
        """Release the pages that only this tensor lies on; an access reads them again."""
        location = self._index[name]
        begin = -(-location.start // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (location.start + location.byte_count) // mmap.PAGESIZE * mmap.PAGESIZE - begin
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
    """The file as a read-only map. Raises `BadWeights` if it is empty."""
    if path.stat().st_size == 0:
        raise BadWeights(path, "size", "a model", "an empty file")
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
