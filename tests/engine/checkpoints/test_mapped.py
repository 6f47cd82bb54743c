"""headstart.engine.checkpoints.mapped: copies out of a mapped file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headstart.engine.checkpoints.mapped import MappedTensors, TensorLocation, map_file
from headstart.engine.errors import BadWeights


def test_indexing_copies(tmp_path: Path) -> None:
    """What is done to a tensor changes neither the file nor the next copy."""
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(8)))
    tensors = MappedTensors({"x": TensorLocation(1, (2, 2), torch.int8)}, map_file(path))
    tensors["x"].zero_()
    assert tensors["x"].tolist() == [[1, 2], [3, 4]]
    assert path.read_bytes() == bytes(range(8))


def test_looking_for_a_name_copies_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`in` is asked of every tensor at a start: half of a Whisper's loading went into copies."""
    path = tmp_path / "numbers"
    path.write_bytes(bytes(8))
    tensors = MappedTensors({"x": TensorLocation(0, (2, 2), torch.int8)}, map_file(path))
    monkeypatch.setattr(MappedTensors, "__getitem__", None)
    assert "x" in tensors
    assert "y" not in tensors


def test_empty_tensor(tmp_path: Path) -> None:
    """A tensor without elements has its shape."""
    path = tmp_path / "numbers"
    path.write_bytes(b"x")
    tensors = MappedTensors({"none": TensorLocation(0, (0, 3), torch.float32)}, map_file(path))
    assert tensors["none"].shape == (0, 3)
    assert len(tensors) == 1


def test_empty_file_is_refused(tmp_path: Path) -> None:
    """A file of no bytes cannot be mapped and is named."""
    path = tmp_path / "nothing"
    path.touch()
    with pytest.raises(BadWeights, match="nothing: size: expected a model, got an empty file"):
        map_file(path)
