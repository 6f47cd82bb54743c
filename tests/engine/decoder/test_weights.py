"""A decoder's tensors: names, shapes, row order, memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile, GgufTensor
from headstart.engine.decoder.dense import DenseStack
from headstart.engine.decoder.weights import DecoderWeights, WeightLoader
from headstart.engine.errors import BadWeights, UnsupportedModel
from tests.engine.tiny_gguf import LLAMA, QWEN2, TinyConfig, write_tiny_gguf


def load(file: GgufFile, backend: str) -> DecoderWeights:
    return WeightLoader(file, DecoderSpec.from_gguf(file), backend).load(lambda done, total: None)


def open_tiny(folder: Path, config: TinyConfig) -> GgufFile:
    return GgufFile(write_tiny_gguf(folder / "x.gguf", config))


@pytest.mark.parametrize("config", [LLAMA, QWEN2])
def test_packed_weights_take_no_more_than_the_file(config: TinyConfig, tmp_path: Path) -> None:
    """Native keeps the file's bytes (rows padded to 16); the reference four a weight."""
    file = open_tiny(tmp_path, config)
    in_file = sum(tensor.raw.nbytes for tensor in file.tensors.values())
    assert in_file <= load(file, "native").nbytes <= 1.05 * in_file
    values = sum(tensor.rows * tensor.cols for tensor in file.tensors.values())
    assert load(file, "reference").nbytes == 4 * values


def test_both_backends_hold_the_same_numbers(tmp_path: Path) -> None:
    """Embedding rows are equal bit for bit; the heads agree to 8-bit activations."""
    file = open_tiny(tmp_path, QWEN2)
    native, reference = load(file, "native"), load(file, "reference")
    tokens = torch.tensor([0, 5, 270])
    assert torch.equal(native.embedding(tokens), reference.embedding(tokens))
    x = torch.randn(3, QWEN2.hidden, generator=torch.Generator().manual_seed(0))
    mine, theirs = native.output(x), reference.output(x)
    assert mine.shape == theirs.shape
    assert (mine - theirs).abs().max() < 0.05


def test_rotated_rows_of_llama_are_put_into_halves(tmp_path: Path) -> None:
    """Row 2i of a head in the file is row i in memory, row 2i + 1 is row D/2 + i; v stays."""
    file = open_tiny(tmp_path, LLAMA)
    raw = file.tensors["blk.0.attn_q.weight"].raw.copy()
    head_dim = LLAMA.hidden // LLAMA.heads
    marked = np.arange(LLAMA.hidden, dtype=np.uint8)
    # A Q4_1 block whose codes are zero holds its minimum alone: here the row's number.
    raw[:] = 0
    raw.reshape(LLAMA.hidden, -1, 20)[:, :, 2:4] = (
        marked.astype(np.float16).view(np.uint8).reshape(-1, 1, 2)
    )
    for name in ("q", "v"):
        key = f"blk.0.attn_{name}.weight"
        old = file.tensors[key]
        file.tensors[key] = GgufTensor(old.name, old.kind, old.rows, old.cols, raw[: old.rows])
    stack = load(file, "reference").layers
    assert isinstance(stack, DenseStack)
    widths = [LLAMA.hidden, LLAMA.kv_width, LLAMA.kv_width]
    q, _, v = torch.split(stack.layers[0].qkv[:, 0], widths)
    head = [*range(0, head_dim, 2), *range(1, head_dim, 2)]
    expected = [h * head_dim + row for h in range(LLAMA.heads) for row in head]
    assert q.tolist() == expected
    assert v.tolist() == list(range(LLAMA.kv_width))


def test_a_missing_misshapen_or_unknown_tensor_is_named(tmp_path: Path) -> None:
    """The loader says which tensor it is about."""
    file = open_tiny(tmp_path, QWEN2)
    name = "blk.1.ffn_down.weight"
    good = file.tensors.pop(name)
    with pytest.raises(BadWeights, match=rf"tensor {name}: .* no such tensor"):
        load(file, "native")
    file.tensors[name] = GgufTensor(name, good.kind, good.rows - 1, good.cols, good.raw[1:])
    with pytest.raises(BadWeights, match=rf"tensor {name}: expected shape \(64, 96\)"):
        load(file, "native")
    file.tensors[name] = GgufTensor(name, "IQ2_XXS", good.rows, good.cols, good.raw)
    with pytest.raises(UnsupportedModel, match=rf"tensor {name}: expected one of .*got IQ2_XXS"):
        load(file, "native")
