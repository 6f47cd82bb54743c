"""headstart.engine.checkpoints.safetensors against the library of that name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from headstart.engine.checkpoints.safetensors import SHARDS_FILE, read_safetensors, read_shards
from headstart.engine.errors import BadWeights


def _with_header(path: Path, header: bytes, data: bytes = b"") -> Path:
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)
    return path


def test_reads_what_the_library_writes(tmp_path: Path) -> None:
    """Names, shapes, types and values agree, whatever metadata there is."""
    tensors = {
        "a": torch.randn(3, 5),
        "b": torch.randn(7).half(),
        "c": torch.randn(2, 2).bfloat16(),
        "d": torch.arange(4),
    }
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    read = read_safetensors(tmp_path / "model.safetensors")
    assert set(read) == set(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(read[name], tensor)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"no json", "expected JSON that names tensors"),
        (b"[1]", "expected JSON that names tensors"),
        (b'{"x": {"dtype": "F32"}}', "expected JSON that names tensors"),
        (
            json.dumps({"x": {"dtype": "Q4", "shape": [1], "data_offsets": [0, 4]}}).encode(),
            "x type",
        ),
        (
            json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}).encode(),
            r"x \[2\] F32: expected 8 bytes, got 4",
        ),
        (
            json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode(),
            "x: expected bytes up to",
        ),
    ],
)
def test_refuses_broken_headers(tmp_path: Path, header: bytes, message: str) -> None:
    """Each fault is told with what was expected and what came."""
    with pytest.raises(BadWeights, match=message):
        read_safetensors(_with_header(tmp_path / "model.safetensors", header, b"1234"))


ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "F16", "BF16", "F64", "I64", "I32"]),
        "shape": st.lists(st.sampled_from([0, 1, 2, 3, -1, 1.0, True, "2"]), max_size=3),
        "data_offsets": st.lists(
            st.sampled_from([0, 2, 4, 8, 12, 16, -4, 4.0, None]), min_size=1, max_size=3
        ),
    }
)
METADATA = st.sampled_from([{}, {"format": "pt"}, {"format": 1}, 5, ["a"]])


@given(
    entries=st.dictionaries(st.sampled_from("abc"), ENTRIES, max_size=3),
    metadata=METADATA,
    size=st.sampled_from([0, 4, 8, 12, 16]),
)
@example(
    entries={"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}, metadata={}, size=4
)
@example(
    entries={n: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for n in "ab"},
    metadata={},
    size=4,
)
@example(entries={"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, metadata={}, size=8)
@example(entries={"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, metadata={}, size=8)
@example(
    entries={"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}, metadata={}, size=4
)
@example(
    entries={"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
    metadata={"format": "pt"},
    size=8,
)
def test_takes_what_the_library_takes(
    tmp_path_factory: pytest.TempPathFactory,
    entries: dict[str, object],
    metadata: object,
    size: int,
) -> None:
    """Overlaps, gaps, surplus, negative and fractional sizes: refused by both, or read alike."""
    path = tmp_path_factory.getbasetemp() / "compared.safetensors"
    _with_header(path, json.dumps({"__metadata__": metadata, **entries}).encode(), bytes(size))
    try:
        with safe_open(path, "pt") as file:
            theirs = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError):
        theirs = None
    try:
        ours = dict(read_safetensors(path))
    except BadWeights:
        ours = None
    if theirs is None or ours is None:
        assert theirs is ours
        return
    assert set(theirs) == set(ours)
    assert all(torch.equal(theirs[name], ours[name]) for name in ours)


def test_refuses_a_header_longer_than_the_file(tmp_path: Path) -> None:
    """A length that points past the end is named, not read."""
    path = tmp_path / "model.safetensors"
    path.write_bytes((1 << 40).to_bytes(8, "little"))
    with pytest.raises(BadWeights, match="header: expected"):
        read_safetensors(path)


def _index(folder: Path, weight_map: object) -> Path:
    (folder / SHARDS_FILE).write_text(json.dumps({"weight_map": weight_map}))
    return folder / SHARDS_FILE


def test_shards_read_as_one(tmp_path: Path) -> None:
    """Tensors of all files are there by name."""
    tensors = {"a": torch.randn(3), "b": torch.randn(2, 2)}
    for name, tensor in tensors.items():
        save_file({name: tensor}, tmp_path / f"{name}.safetensors")
    read = read_shards(_index(tmp_path, {name: f"{name}.safetensors" for name in tensors}))
    assert set(read) == {"a", "b"}
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "gone.safetensors"}, r"expected gone\.safetensors beside it, got no such file"),
        ({"a": "../a.safetensors"}, "expected plain file names"),
        ([], "weight_map: expected names of files"),
        (None, "weight_map: expected names of files"),
    ],
)
def test_refuses_a_wrong_index(tmp_path: Path, weight_map: object, message: str) -> None:
    """A shard that is not there, or lies elsewhere, is named."""
    with pytest.raises(BadWeights, match=message):
        read_shards(_index(tmp_path, weight_map))


def test_a_clone_without_its_large_files_is_told(tmp_path: Path) -> None:
    """Git LFS leaves a few lines of text in a file's place."""
    path = tmp_path / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    with pytest.raises(BadWeights, match="Git LFS pointer"):
        read_safetensors(path)
