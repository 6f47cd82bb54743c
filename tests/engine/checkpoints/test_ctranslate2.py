"""headstart.engine.checkpoints.ctranslate2: what it reads, and what it refuses."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch

from headstart.engine.checkpoints.ctranslate2 import read_ct2
from headstart.engine.errors import BadWeights


def _string(text: str) -> bytes:
    raw = text.encode() + b"\0"
    return struct.pack("<H", len(raw)) + raw


def _tensor(name: str, shape: tuple[int, ...], code: int, data: bytes) -> bytes:
    head = struct.pack(f"<B{len(shape)}IBI", len(shape), *shape, code, len(data))
    return _string(name) + head + data


def _file(tensors: list[bytes], aliases: list[tuple[str, str]] = [], version: int = 6) -> bytes:  # noqa: B006
    head = struct.pack("<I", version) + _string("WhisperSpec") + struct.pack("<II", 3, len(tensors))
    names = b"".join(_string(alias) + _string(target) for alias, target in aliases)
    return head + b"".join(tensors) + struct.pack("<I", len(aliases)) + names


_HALVES = _tensor("odd/name", (2, 3), 4, struct.pack("<6e", 1, 2, 3, 4, 5, 6.5))
_SCALAR = _tensor("heads", (), 2, struct.pack("<h", 6))
_GOOD = _file([_HALVES, _SCALAR], [("alias", "odd/name")])


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_reads_tensors_and_aliases(tmp_path: Path) -> None:
    """Shapes, types, values and aliases come out as written, at any alignment."""
    file = read_ct2(_write(tmp_path / "model.bin", _GOOD))
    assert (file.spec, file.revision) == ("WhisperSpec", 3)
    expected = torch.tensor([[1, 2, 3], [4, 5, 6.5]], dtype=torch.float16)
    assert torch.equal(file.tensors["odd/name"], expected)
    assert torch.equal(file.tensors["alias"], expected)
    assert int(file.tensors["heads"]) == 6
    assert list(file.tensors) == ["odd/name", "heads", "alias"]


def test_every_truncation_is_named(tmp_path: Path) -> None:
    """Cut at any byte, the file is refused by name, and nothing else is raised."""
    path = tmp_path / "model.bin"
    for size in range(len(_GOOD)):
        with pytest.raises(BadWeights, match=r"model\.bin"):
            read_ct2(_write(path, _GOOD[:size]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a model, got an empty file"),
        (_file([], version=5), "binary version: expected 6, got 5"),
        (_file([_tensor("x", (2,), 4, b"123")]), "expected 4 bytes, got 3"),
        (_file([_tensor("x", (1,), 9, b"1")]), "x type: expected less than 6, got 9"),
        (_file([], [("a", "b")]), "alias a: expected a tensor of the file, got 'b'"),
        (
            _file([]).replace(b"Whisper", b"\xff\xff\xff\xff\xff\xff\xff"),
            "spec name: expected text",
        ),
    ],
)
def test_refuses_what_is_no_model(tmp_path: Path, data: bytes, message: str) -> None:
    """Each fault is told with what was expected and what came."""
    with pytest.raises(BadWeights, match=message):
        read_ct2(_write(tmp_path / "model.bin", data))
