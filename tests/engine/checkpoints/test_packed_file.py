"""Packed weights in a file: the same bytes come back, and no damage goes unnoticed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine.checkpoints.packed_file import MAGIC, PackedFile, PackedWriter
from headstart.engine.errors import BadWeights
from headstart.kernels.qlinear import QWeight, pack, qlinear

SILENCE = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
SHAPES = {"a": ("Q8_0", 40, 64), "b": ("Q5_0", 16, 32), "c": ("Q4_1", 7, 96), "d": ("F16", 5, 3)}


def weight(kind: str, rows: int, cols: int) -> QWeight:
    values = np.random.default_rng(rows).normal(size=(rows, cols)).astype(np.float32)
    raw = gguf.quantize(values, gguf.GGMLQuantizationType[kind])
    return pack(kind, np.ascontiguousarray(raw).view(np.uint8), rows, cols)


def write(path: Path, key: str = "key") -> dict[str, QWeight]:
    made = {name: weight(*shape) for name, shape in SHAPES.items()}
    with PackedWriter(path, key) as writer:
        for name, each in made.items():
            writer.add(name, each)
        writer.add_tensor("silence", SILENCE)
        writer.finish()
    return made


def test_weights_come_back_bit_for_bit(tmp_path: Path) -> None:
    """Panels are the same bytes, aligned as the kernels' own memory is, and kernels run on them."""
    made = write(tmp_path / "x")
    file = PackedFile(tmp_path / "x", "key")
    assert len(file) == len(made) + 1
    for name, original in made.items():
        mapped = file.weight(name, original.kind, original.rows, original.cols)
        assert torch.equal(mapped.panels, original.panels)
        assert mapped.panels.data_ptr() % 64 == 0
        x = torch.randn(2, original.cols, generator=torch.Generator().manual_seed(0))
        assert torch.equal(qlinear(x, mapped), qlinear(x, original))


def test_tensors_come_back_bit_for_bit(tmp_path: Path) -> None:
    """Also NaN and negative zero, from memory that is not contiguous; of other shapes there are
    none."""
    odd = torch.tensor([[float("nan"), -0.0, 1e-45], [float("inf"), 1.0, 2.0]])
    with PackedWriter(tmp_path / "x", "key") as writer:
        writer.add_tensor("odd", odd.T)
        writer.add_tensor("one", torch.tensor(3.0))
        writer.finish()
    file = PackedFile(tmp_path / "x", "key")
    found = file.tensor("odd", (3, 2))
    assert torch.equal(found.view(torch.int32), odd.T.contiguous().view(torch.int32))
    assert found.data_ptr() % 64 == 0
    assert float(file.tensor("one", ())) == 3.0
    assert "odd" in file
    assert "even" not in file
    for name, shape in (("odd", (2, 3)), ("odd", (6,)), ("even", (3, 2))):
        with pytest.raises(BadWeights, match=f"tensor {name}"):
            file.tensor(name, shape)


def test_weights_outlive_their_file(tmp_path: Path) -> None:
    """They are valid when the file is removed, and when only they are still referenced."""
    original = write(tmp_path / "x")["a"]
    mapped = PackedFile(tmp_path / "x", "key").weight("a", *SHAPES["a"])
    (tmp_path / "x").unlink()
    assert torch.equal(mapped.panels, original.panels)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_anywhere_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever bit is wrong: `BadWeights`, or, in the padding alone, the same weights."""
    path = tmp_path_factory.mktemp("flip") / "x"
    made = write(path)
    whole = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    try:
        file = PackedFile(path, "key")
        assert torch.equal(file.tensor("silence", SILENCE.shape), SILENCE)
        for name, shape in SHAPES.items():
            assert torch.equal(file.weight(name, *shape).panels, made[name].panels)
    except BadWeights:
        return


@pytest.mark.parametrize("bit", [1, 128])
@pytest.mark.parametrize("what", [b'"key":"key"', b'"silence"', b'"Q8_0"'])
def test_a_flipped_bit_in_a_name_is_noticed_at_once(tmp_path: Path, what: bytes, bit: int) -> None:
    """Another name would be missing only when it is asked for, or is no text at all."""
    write(tmp_path / "x")
    whole = bytearray((tmp_path / "x").read_bytes())
    whole[whole.rindex(what) + 2] ^= bit
    (tmp_path / "x").write_bytes(whole)
    with pytest.raises(BadWeights, match="index, hash"):
        PackedFile(tmp_path / "x", "key")


@pytest.mark.parametrize("kept", [0, 10, 0.5, 0.99, -1])
def test_a_file_cut_short_is_refused(tmp_path: Path, kept: float) -> None:
    """At any place, the last byte included."""
    write(tmp_path / "x")
    whole = (tmp_path / "x").read_bytes()
    size = round(len(whole) * kept) if 0 < kept < 1 else int(kept)
    (tmp_path / "x").write_bytes(whole[:size])
    with pytest.raises(BadWeights):
        PackedFile(tmp_path / "x", "key")


def test_swapped_panels_within_the_file_are_refused(tmp_path: Path) -> None:
    """A block of the disk that holds another file's bytes."""
    write(tmp_path / "x")
    whole = bytearray((tmp_path / "x").read_bytes())
    whole[:512] = whole[1024:1536]
    (tmp_path / "x").write_bytes(whole)
    with pytest.raises(BadWeights, match="weight a, sum"):
        PackedFile(tmp_path / "x", "key")


def test_another_key_or_shape_is_refused(tmp_path: Path) -> None:
    """What was made of other weights is named, and what is not there too."""
    write(tmp_path / "x", "of another model")
    with pytest.raises(BadWeights, match="expected key, got of another model"):
        PackedFile(tmp_path / "x", "key")
    file = PackedFile(tmp_path / "x", "of another model")
    with pytest.raises(BadWeights, match="no such weight"):
        file.weight("e", "Q8_0", 40, 64)
    for shape in (("Q5_0", 40, 64), ("Q8_0", 41, 64), ("Q8_0", 40, 96)):
        with pytest.raises(BadWeights, match="weight a"):
            file.weight("a", *shape)


@pytest.mark.parametrize(
    "index",
    [
        b"nonsense",
        b'{"key": "key"}',
        b'{"key": "key", "weights": {}}',
        b'{"key": "key", "weights": {"a": {"kind": "Q9", "rows": 1, "cols": 32, "offset": 0, '
        b'"sum": 0}}, "tensors": {}}',
        b'{"key": "key", "weights": {"a": {"kind": "Q8_0", "rows": 1, "cols": 33, "offset": 0, '
        b'"sum": 0}}, "tensors": {}}',
        b'{"key": "key", "weights": {"a": {"kind": "Q8_0", "rows": 999999, "cols": 32, '
        b'"offset": 0, "sum": 0}}, "tensors": {}}',
        b'{"key": "key", "weights": {"a": {"kind": "Q8_0", "rows": 1, "cols": 32, "offset": -64, '
        b'"sum": 0}}, "tensors": {}}',
        b'{"key": "key", "weights": {}, "tensors": {"a": {"shape": [999999], "offset": 0, '
        b'"sum": 0}}}',
        b'{"key": "key", "weights": {}, "tensors": {"a": {"shape": [-1], "offset": 0, "sum": 0}}}',
        b'{"key": "key", "weights": {}, "tensors": {"a": {"shape": [2], "offset": 4, "sum": 0}}}',
        b'{"key": "key", "weights": {}, "tensors": {"a": {"shape": [2], "offset": 0, "sum": 9}}}',
    ],
)
def test_an_index_of_nonsense_is_refused(tmp_path: Path, index: bytes) -> None:
    """Not JSON, fields missing, an unknown kind, and sizes that do not fit."""
    path = tmp_path / "x"
    digest = hashlib.blake2b(index, digest_size=16).digest()
    path.write_bytes(bytes(2048) + index + digest + len(index).to_bytes(8, "little") + MAGIC)
    with pytest.raises(BadWeights):
        PackedFile(path, "key")


def test_a_file_without_its_end_is_none(tmp_path: Path) -> None:
    """A writer that was killed has not called `finish`."""
    with PackedWriter(tmp_path / "x", "key") as writer:
        writer.add("a", weight(*SHAPES["a"]))
    with pytest.raises(BadWeights, match="end of the file"):
        PackedFile(tmp_path / "x", "key")
