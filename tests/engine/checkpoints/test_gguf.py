"""Reading GGUF files: our parser against the `gguf` package's reader, and broken files."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest

from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.errors import BadWeights
from tests.engine.tiny_gguf import LLAMA, QWEN2, TinyConfig, write_tiny_gguf


@pytest.fixture
def tiny_path(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf")


@pytest.mark.parametrize("config", [QWEN2, LLAMA, TinyConfig(quantisation="F16")])
def test_we_read_what_the_gguf_package_reads(config: TinyConfig, tmp_path: Path) -> None:
    """Every metadata value and every byte of every tensor is the same as in the other reader."""
    path = write_tiny_gguf(tmp_path / "tiny.gguf", config)
    reader, ours = gguf.GGUFReader(path), GgufFile(path)
    theirs = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
    assert ours.metadata == theirs
    assert set(ours.tensors) == {tensor.name for tensor in reader.tensors}
    for tensor in reader.tensors:
        mine = ours.tensors[tensor.name]
        cols, *more = tensor.shape.tolist()
        assert mine.shape == (int(np.prod(more)), cols)
        assert mine.kind == tensor.tensor_type.name
        assert mine.raw.tobytes() == tensor.data.tobytes()


def test_every_cut_of_a_file_is_refused_by_name(tiny_path: Path, tmp_path: Path) -> None:
    """A file cut anywhere, in the header or the tensors, is `BadWeights`, never anything else."""
    whole = tiny_path.read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in [*range(0, 400, 7), *range(400, len(whole), len(whole) // 40), len(whole) - 33]:
        cut.write_bytes(whole[:size])
        with pytest.raises(BadWeights) as caught:
            GgufFile(cut)
        assert caught.value.file == cut


def test_flipped_header_bytes_never_crash_the_reader(tiny_path: Path, tmp_path: Path) -> None:
    """Any byte of the header changed: the file opens or is `BadWeights`; no memory is wasted."""
    whole = tiny_path.read_bytes()
    bad = tmp_path / "bad.gguf"
    for place in range(0, 3000, 13):
        bad.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with suppress(BadWeights):
            GgufFile(bad)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """No file, an empty one, a wrong magic and a wrong version say what was expected."""
    path = tmp_path / "x.gguf"
    with pytest.raises(BadWeights, match="no such file"):
        GgufFile(path)
    for content, words in (
        (b"", "0 bytes"),
        (b"PK\x03\x04" * 10, "magic: expected b'GGUF', got b'PK"),
        (b"GGUF" + struct.pack("<I", 9) + bytes(16), "GGUF version"),
    ):
        path.write_bytes(content)
        with pytest.raises(BadWeights, match=words):
            GgufFile(path)


def test_a_missing_tensor_and_a_wrong_shape_are_named(tiny_path: Path) -> None:
    """The error says which tensor, the shape expected and the shape found."""
    file = GgufFile(tiny_path)
    with pytest.raises(BadWeights, match=r"tensor blk\.9\.nope: expected shape \(1, 64\), got no"):
        file.vector("blk.9.nope", 64)
    with pytest.raises(BadWeights, match=r"attn_q\.weight: expected shape \(64, 65\), got \(64, 6"):
        file.tensor("blk.0.attn_q.weight", (64, 65))


def test_a_quantised_vector_is_refused(tmp_path: Path) -> None:
    """Norms and biases must be F32; anything else would need its own rounding."""
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(path, "qwen2")
    kind = gguf.GGMLQuantizationType.Q8_0
    ones = gguf.quantize(np.ones(64, dtype=np.float32), kind)
    writer.add_tensor("output_norm.weight", ones, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(BadWeights, match="expected F32, got Q8_0"):
        GgufFile(path).vector("output_norm.weight", 64)


def test_metadata_of_a_wrong_kind_is_named(tiny_path: Path) -> None:
    """A missing value and a text where a number belongs are `BadWeights`; defaults hold."""
    file = GgufFile(tiny_path)
    with pytest.raises(BadWeights, match=r"metadata qwen2\.nope: expected int, got nothing"):
        file.require("qwen2.nope", int)
    with pytest.raises(BadWeights, match="expected int, got str"):
        file.require("general.architecture", int)
    assert file.get("qwen2.nope", int, 5) == 5
    assert file.get("qwen2.block_count", float, 0.0) == 3.0


def test_closing_gives_the_file_back(tiny_path: Path) -> None:
    """Vectors are copies and outlive the mapping."""
    file = GgufFile(tiny_path)
    norm = file.vector("output_norm.weight", 64)
    expected = norm.copy()
    file.close()
    assert np.array_equal(norm, expected)
