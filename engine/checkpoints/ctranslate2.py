"""Reader of CTranslate2's `model.bin`: a header, then named tensors one after another.

Layout, little endian; a "string" is a u16 length (including the closing NUL) and the bytes:

    u32 binary version (6) · string spec name · u32 spec revision · u32 tensor count
    per tensor: string name · u8 rank · u32 size per axis · u8 type · u32 byte count · the bytes
    u32 alias count · per alias: string alias · string tensor name
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

import torch

from headstart.engine.checkpoints.mapped import MappedTensors, TensorLocation, map_file
from headstart.engine.errors import BadWeights

BINARY_VERSION = 6
_TYPES = (
    torch.float32,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.float16,
    torch.bfloat16,
)


@dataclass(frozen=True)
class Ct2File:
    """A model.bin: the spec's name and revision, and its tensors by name (aliases included)."""

    spec: str
    revision: int
    tensors: MappedTensors


def read_ct2(path: Path) -> Ct2File:
    """Map `path` and index its tensors. Raises `BadWeights` naming what was expected and found."""
    data = map_file(path)
    reader = _Reader(path, data)
    version = reader.number("I", "binary version")
    if version != BINARY_VERSION:
        raise BadWeights(path, "binary version", str(BINARY_VERSION), str(version))
    spec = reader.string("spec name")
    revision = reader.number("I", "spec revision")
    index: dict[str, TensorLocation] = {}
    for _ in range(reader.number("I", "tensor count")):
        name = reader.string("a tensor's name")
        index[name] = reader.tensor(name)
    for _ in range(reader.number("I", "alias count")):
        alias, target = reader.string("an alias"), reader.string("an alias's target")
        if target not in index:
            raise BadWeights(path, f"alias {alias}", "a tensor of the file", repr(target))
        index[alias] = index[target]
    return Ct2File(spec, revision, MappedTensors(index, data))


class _Reader:
    """A cursor over the mapped file. A read beyond its end raises `BadWeights` naming the field."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._at = 0

    def number(self, code: str, what: str) -> int:
        (value,) = struct.unpack("<" + code, self._take(struct.calcsize("<" + code), what))
        return int(value)

    def string(self, what: str) -> str:
        raw = self._take(self.number("H", what), what)
        try:
            return raw.rstrip(b"\0").decode()
        except UnicodeDecodeError as error:
            raise BadWeights(self._path, what, "text", repr(raw)) from error

    def tensor(self, name: str) -> TensorLocation:
        shape = tuple(self.number("I", name) for _ in range(self.number("B", name)))
        code = self.number("B", name)
        if code >= len(_TYPES):
            raise BadWeights(self._path, f"{name} type", f"less than {len(_TYPES)}", str(code))
        byte_count = self.number("I", name)
        location = TensorLocation(self._skip(byte_count, name), shape, _TYPES[code])
        if location.byte_count != byte_count:
            what = f"{name} {list(shape)} {location.dtype}"
            raise BadWeights(self._path, what, f"{location.byte_count} bytes", f"{byte_count}")
        return location

    def _take(self, count: int, what: str) -> bytes:
        start = self._skip(count, what)
        return self._data[start : start + count]

    def _skip(self, count: int, what: str) -> int:
        """Advance by `count` bytes; return where they start."""
        start, end = self._at, self._at + count
        if end > len(self._data):
            raise BadWeights(
                self._path, what, f"bytes {start} to {end}", f"a file of {len(self._data)} bytes"
            )
        self._at = end
        return start
