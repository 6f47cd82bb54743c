"""What a decoder is made of, read from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.errors import BadWeights, UnsupportedModel
from tests.engine.tiny_gguf import LLAMA, QWEN2, vocabulary, write_tiny_gguf


@pytest.fixture
def file(tmp_path: Path) -> GgufFile:
    return GgufFile(write_tiny_gguf(tmp_path / "x.gguf"))


def test_sizes_come_from_the_file(file: GgufFile) -> None:
    """Every field is what was written, the head size derived."""
    assert DecoderSpec.from_gguf(file) == DecoderSpec(
        architecture="qwen2",
        layers=QWEN2.layers,
        hidden=QWEN2.hidden,
        ffn=QWEN2.ffn,
        heads=QWEN2.heads,
        kv_heads=QWEN2.kv_heads,
        head_dim=16,
        vocab_size=len(vocabulary()[0]),
        context_tokens=QWEN2.context_tokens,
        rope_base=QWEN2.rope_base,
        rms_eps=float(np.float32(1e-6)),
        qkv_bias=True,
        tied_output=False,
    )


def test_llama_is_told_from_qwen2(tmp_path: Path) -> None:
    """Only the llama architecture stores rotated rows as neighbours; no bias, tied output."""
    spec = DecoderSpec.from_gguf(GgufFile(write_tiny_gguf(tmp_path / "x.gguf", LLAMA)))
    assert spec.interleaved_rope_rows
    assert (spec.qkv_bias, spec.tied_output) == (False, True)


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("general.architecture", "mamba", UnsupportedModel, "one of llama, qwen2, got mamba"),
        ("qwen2.rope.scaling.type", "yarn", UnsupportedModel, "rope scaling"),
        ("qwen2.rope.dimension_count", 8, UnsupportedModel, "rotated dimensions"),
        ("qwen2.attention.head_count_kv", 3, BadWeights, "a multiple of 3, got 4"),
        ("qwen2.block_count", 0, BadWeights, "at least 1, got 0"),
        ("qwen2.embedding_length", None, BadWeights, "expected int, got nothing"),
    ],
)
def test_what_this_decoder_cannot_compute_is_refused(
    file: GgufFile, key: str, value: Any, error: type[BadWeights], words: str
) -> None:
    """Another family, scaled or partial rotation, sizes that do not fit: by name."""
    file.metadata[key] = value
    with pytest.raises(error, match=words):
        DecoderSpec.from_gguf(file)
