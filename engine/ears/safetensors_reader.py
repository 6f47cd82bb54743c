"""Reader of `model.safetensors`: u64 header length, a JSON header, then the tensors' bytes.

The header maps each name to `dtype`, `shape` and `data_offsets` (counted from the header's end).
"""

from __future__ import annotations

import json
from pathlib import Path

import torch

from engine.ears.mapped import MappedTensors, Place, map_file
from engine.errors import BadWeights

_TYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F64": torch.float64,
    "I64": torch.int64,
    "I32": torch.int32,
}
_LENGTH_BYTES = 8


def read_safetensors(path: Path) -> MappedTensors:
    """Map `path` and index its tensors. Raises `BadWeights`."""
    data = map_file(path)
    base = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    if base > len(data):
        raise BadWeights(path, "header", f"{base} bytes", f"a file of {len(data)} bytes")
    try:
        header = json.loads(data[_LENGTH_BYTES:base])
        header.pop("__metadata__", None)
        index = {name: _place(path, name, entry, base) for name, entry in header.items()}
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise BadWeights(path, "header", "JSON that names tensors", repr(error)) from error
    for name, place in index.items():
        end = place.start + place.byte_count
        if end > len(data):
            raise BadWeights(path, name, f"bytes up to {end}", f"a file of {len(data)} bytes")
    return MappedTensors(index, data)


def _place(path: Path, name: str, entry: dict[str, object], base: int) -> Place:
    start, end = (int(offset) for offset in entry["data_offsets"])  # type: ignore[attr-defined]
    shape = tuple(int(size) for size in entry["shape"])  # type: ignore[attr-defined]
    kind = str(entry["dtype"])
    if kind not in _TYPES:
        raise BadWeights(path, f"{name} type", f"one of {', '.join(_TYPES)}", kind)
    place = Place(base + start, shape, _TYPES[kind])
    if place.byte_count != end - start:
        what = f"{name} {list(shape)} {kind}"
        raise BadWeights(path, what, f"{place.byte_count} bytes", f"{end - start}")
    return place
