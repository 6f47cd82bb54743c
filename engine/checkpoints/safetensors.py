"""Reader of `model.safetensors`: u64 header length, a JSON header, then the tensors' bytes.

The header maps each name to `dtype`, `shape` and `data_offsets` (counted from the header's end).
The tensors lie one behind the other, without a gap and without anything behind the last.
A large model is split into several such files; `model.safetensors.index.json` maps names to files.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from headstart.engine.checkpoints.mapped import MappedTensors, TensorLocation, map_file
from headstart.engine.checkpoints.named import read_json
from headstart.engine.errors import BadWeights

_TYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F64": torch.float64,
    "I64": torch.int64,
    "I32": torch.int32,
}
_LENGTH_BYTES = 8
_LFS = b"version https://git-lfs"  # content of the file in a clone without LFS

SHARDS_FILE = "model.safetensors.index.json"


def read_safetensors(path: Path) -> MappedTensors:
    """Map `path` and index its tensors. Raises `BadWeights`."""
    data = map_file(path)
    base = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    if bytes(data[: len(_LFS)]) == _LFS:
        raise BadWeights(path, "content", "tensors", "a Git LFS pointer to them (git lfs pull)")
    if base > len(data):
        raise BadWeights(path, "header", f"{base} bytes", f"a file of {len(data)} bytes")
    try:
        header = json.loads(data[_LENGTH_BYTES:base])
        metadata = header.pop("__metadata__", {})
        index = {name: _location(path, name, entry, base) for name, entry in header.items()}
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise BadWeights(path, "header", "JSON that names tensors", repr(error)) from error
    for name, location in index.items():
        end = location.start + location.byte_count
        if end > len(data):
            raise BadWeights(path, name, f"bytes up to {end}", f"a file of {len(data)} bytes")
    end, of = base, "the header"
    for name, location in sorted(
        index.items(), key=lambda item: (item[1].start, item[1].byte_count)
    ):
        if location.start != end:
            came = f"it begins at {location.start}"
            raise BadWeights(path, name, f"its first byte at {end}, behind {of}", came)
        end, of = end + location.byte_count, name
    if end != len(data):
        raise BadWeights(path, "size", f"{end} bytes, as its header says", f"{len(data)}")
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise BadWeights(path, "__metadata__", "texts by name", repr(metadata)[:60])
    return MappedTensors(index, data)


def read_shards(index_path: Path) -> Mapping[str, Tensor]:
    """Map all files listed in the index. Raises `BadWeights`, also for a file that is missing."""
    index = read_json(index_path).get("weight_map")
    if not isinstance(index, dict) or not index:
        raise BadWeights(index_path, "weight_map", "names of files by tensor", repr(index))
    shards = []
    for name in sorted({str(value) for value in index.values()}):
        path = index_path.parent / name
        if Path(name).name != name:
            raise BadWeights(index_path, "weight_map", "plain file names", repr(name))
        if not path.is_file():
            raise BadWeights(index_path, "weight_map", f"{name} beside it", "no such file")
        shards.append(read_safetensors(path))
    return ChainMap(*shards)  # type: ignore[arg-type]  # read only


def _location(path: Path, name: str, entry: dict[str, object], base: int) -> TensorLocation:
    start, end = (_size(offset) for offset in entry["data_offsets"])  # type: ignore[attr-defined]
    shape = tuple(_size(size) for size in entry["shape"])  # type: ignore[attr-defined]
    kind = str(entry["dtype"])
    if kind not in _TYPES:
        raise BadWeights(path, f"{name} type", f"one of {', '.join(_TYPES)}", kind)
    location = TensorLocation(base + start, shape, _TYPES[kind])
    if location.byte_count != end - start:
        what = f"{name} {list(shape)} {kind}"
        raise BadWeights(path, what, f"{location.byte_count} bytes", f"{end - start}")
    return location


def _size(value: object) -> int:
    """A whole number that is not negative. Raises `ValueError`."""
    if type(value) is not int or value < 0:
        raise ValueError(f"expected a whole number from 0 on, got {value!r}")
    return value
