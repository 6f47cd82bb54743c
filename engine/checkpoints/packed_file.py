"""Packed weights in one file, to be mapped: a start then neither merges, packs nor copies them.

    panels of all weights and fp32 of all tensors, each at a multiple of 64 bytes
    index                   JSON: key; kind, rows, cols, offset and sum of each weight by name;
                            shape, offset and sum of each tensor by name
    hash of the index       16 bytes: BLAKE2b
    index length            u64, little-endian
    magic                   16 bytes: "headstart packed"

The index lies at the end because sums are known only then. A weight's sum is that of its panels'
u64 words modulo 2^64 (of a tensor's u32 words): every byte is read and checked when a file is
opened, which also brings the pages into memory before the first token needs them. Panels are the
same on all processors (kernels/qlinear/panels.py), big-endian ones apart, which no kernel runs on.

Engines that map the same file share its memory. Its pages may be huge ones where the file system
has large folios; they are asked for.
"""

from __future__ import annotations

import hashlib
import logging
import math
import mmap
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import msgspec
import numpy as np
import torch
from torch import Tensor

from headstart.engine.errors import BadWeights
from headstart.kernels.qlinear import FORMATS, QWeight, WeightShapeError, panel_shape

log = logging.getLogger("headstart.engine")

MAGIC = b"headstart packed"
_HASH_BYTES = 16
_LENGTH_BYTES = 8
_TAIL_BYTES = _HASH_BYTES + _LENGTH_BYTES + len(MAGIC)
_ALIGNMENT_BYTES = 64


class _Entry(msgspec.Struct, frozen=True):
    kind: str
    rows: int
    cols: int
    offset: int
    sum: int


class _TensorEntry(msgspec.Struct, frozen=True):
    shape: list[int]
    offset: int
    sum: int


class _Index(msgspec.Struct, frozen=True):
    key: str
    weights: dict[str, _Entry]
    tensors: dict[str, _TensorEntry]


def open_packed(path: Path, key: str, what: str) -> PackedFile | None:
    """The file at `path`, checked whole; None if there is none, or none that can be used, which the
    log then says of `what` ("packed weights")."""
    try:
        return PackedFile(path, key)
    except FileNotFoundError:
        return None
    except (BadWeights, OSError) as error:
        log.warning("%s cannot be used: %s", what, error)
        return None


class PackedFile:
    """The weights of a complete file. They are valid as long as any of them is referenced."""

    def __init__(self, path: Path, key: str) -> None:
        """Map `path` and check every byte. Raises `BadWeights` for a file that is damaged or was
        made of something else (another `key`), `OSError` for one that is not there."""
        self._path = path
        size_bytes = path.stat().st_size
        if size_bytes < _TAIL_BYTES:
            raise BadWeights(path, "size", f"at least {_TAIL_BYTES} bytes", str(size_bytes))
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            _advise(self._map, mmap.MADV_HUGEPAGE)
        index = self._index()
        if index.key != key:
            raise BadWeights(path, "key", key, index.key)
        self._weights = {name: self._weight(name, entry) for name, entry in index.weights.items()}
        self._tensors = {name: self._tensor(name, entry) for name, entry in index.tensors.items()}

    def __len__(self) -> int:
        return len(self._weights) + len(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._weights or name in self._tensors

    def weight(self, name: str, kind: str, rows: int, cols: int) -> QWeight:
        """Raises `BadWeights` unless it is there and of this kind and shape."""
        weight = self._weights.get(name)
        if weight is None:
            raise BadWeights(self._path, f"weight {name}", "one of the file", "no such weight")
        found = (weight.kind, weight.rows, weight.cols)
        if found != (kind, rows, cols):
            raise BadWeights(self._path, f"weight {name}", f"{(kind, rows, cols)}", f"{found}")
        return weight

    def tensor(self, name: str, shape: Sequence[int]) -> Tensor:
        """fp32, not to be written to. Raises `BadWeights` unless it is there in this shape."""
        tensor = self._tensors.get(name)
        if tensor is None:
            raise BadWeights(self._path, f"tensor {name}", "one of the file", "no such tensor")
        if list(tensor.shape) != list(shape):
            raise BadWeights(self._path, f"tensor {name}", f"{shape}", f"{list(tensor.shape)}")
        return tensor

    def _index(self) -> _Index:
        tail = self._map[-_TAIL_BYTES:]
        wanted, rest = tail[:_HASH_BYTES], tail[_HASH_BYTES:]
        if rest[_LENGTH_BYTES:] != MAGIC:
            found = repr(rest[_LENGTH_BYTES:])
            raise BadWeights(self._path, "end of the file", repr(MAGIC), found)
        length = int.from_bytes(rest[:_LENGTH_BYTES], "little")
        begin = len(self._map) - _TAIL_BYTES - length
        if begin < 0:
            raise BadWeights(self._path, "index", f"{length} bytes", f"{len(self._map)} in all")
        index = self._map[begin : begin + length]
        if (digest := _hash(index)) != wanted:
            raise BadWeights(self._path, "index, hash", wanted.hex(), digest.hex())
        try:
            return msgspec.json.decode(index, type=_Index)
        except msgspec.DecodeError as error:
            raise BadWeights(self._path, "index", "JSON of weights", str(error)) from error

    def _weight(self, name: str, entry: _Entry) -> QWeight:
        what = f"weight {name}"
        if entry.kind not in FORMATS:
            raise BadWeights(self._path, what, f"one of {', '.join(FORMATS)}", entry.kind)
        try:
            shape = panel_shape(entry.kind, entry.rows, entry.cols)
        except WeightShapeError as error:
            raise BadWeights(self._path, what, "whole blocks", str(error)) from error
        flat = self._bytes(what, entry.offset, shape[0] * shape[1])
        weight = QWeight(entry.kind, entry.rows, entry.cols, flat.view(shape))
        self._check_sum(what, entry.sum, _sum(weight))
        return weight

    def _tensor(self, name: str, entry: _TensorEntry) -> Tensor:
        what = f"tensor {name}"
        if min(entry.shape, default=1) < 1:
            raise BadWeights(self._path, what, "sizes of at least 1", f"{entry.shape}")
        flat = self._bytes(what, entry.offset, math.prod(entry.shape) * torch.float32.itemsize)
        tensor = flat.view(torch.float32).view(entry.shape)
        self._check_sum(what, entry.sum, _tensor_sum(tensor))
        return tensor

    def _bytes(self, what: str, offset: int, size_bytes: int) -> Tensor:
        """uint8 [`size_bytes`] on the mapped pages."""
        if offset < 0 or offset % _ALIGNMENT_BYTES or offset + size_bytes > len(self._map):
            raise BadWeights(self._path, what, f"{size_bytes} bytes in the file", str(offset))
        with warnings.catch_warnings():
            # Nobody writes to weights; a write would end the process, not change the file.
            warnings.filterwarnings("ignore", "The given buffer is not writable")
            return torch.frombuffer(self._map, dtype=torch.uint8, count=size_bytes, offset=offset)

    def _check_sum(self, what: str, wanted: int, found: int) -> None:
        if found != wanted:
            raise BadWeights(self._path, f"{what}, sum", f"{wanted:#x}", f"{found:#x}")


class PackedWriter:
    """Writes weights one after the other; without `finish` the file is not complete."""

    def __init__(self, path: Path, key: str) -> None:
        """Raises `OSError`, as all methods do."""
        self._key = key
        self._entries: dict[str, _Entry] = {}
        self._tensors: dict[str, _TensorEntry] = {}
        self._offset = 0
        self._file: BinaryIO = path.open("wb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, name: str, weight: QWeight) -> None:
        assert name not in self._entries
        self._entries[name] = _Entry(
            weight.kind, weight.rows, weight.cols, self._offset, _sum(weight)
        )
        self._write_aligned(weight.panels.numpy().reshape(-1).data)

    def add_tensor(self, name: str, tensor: Tensor) -> None:
        """fp32, of any shape without a size of 0."""
        assert name not in self._tensors
        assert tensor.dtype == torch.float32
        assert tensor.numel() > 0
        whole = tensor.contiguous()
        entry = _TensorEntry(list(whole.shape), self._offset, _tensor_sum(whole))
        self._tensors[name] = entry
        self._write_aligned(whole.numpy().reshape(-1).view(np.uint8).data)

    def finish(self) -> None:
        index = msgspec.json.encode(_Index(self._key, self._entries, self._tensors))
        length = len(index).to_bytes(_LENGTH_BYTES, "little")
        self._write(memoryview(index + _hash(index) + length + MAGIC))

    def _write_aligned(self, data: memoryview) -> None:
        self._write(data)
        self._write(memoryview(bytes(-self._offset % _ALIGNMENT_BYTES)))

    def _write(self, data: memoryview) -> None:
        while data:  # a write may take a part only
            written = self._file.write(data)
            assert written is not None
            data = data[written:]
            self._offset += written


def _hash(index: bytes) -> bytes:
    return hashlib.blake2b(index, digest_size=_HASH_BYTES).digest()


def _sum(weight: QWeight) -> int:
    """The sum of the panels' u64 words modulo 2^64."""
    words = weight.panels.numpy().reshape(-1).view("<u8")
    return int(np.add.reduce(words, dtype=np.uint64))


def _tensor_sum(tensor: Tensor) -> int:
    """The sum of its u32 words modulo 2^64."""
    words = tensor.numpy().reshape(-1).view("<u4")
    return int(np.add.reduce(words, dtype=np.uint64))


def _advise(mapped: mmap.mmap, advice: int) -> None:
    """Advice that is refused costs speed only."""
    try:
        mapped.madvise(advice)
    except OSError:
        return
