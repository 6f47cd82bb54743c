"""Small GGUF files with random weights and a real byte-level vocabulary, for tests.

Written by the `gguf` package, read by ours and by `transformers`, so neither side grades itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("Ġ t", "h e", "Ġt he", "Ġ a", "i n", "Ġ w", "o r", "l d", "Ġw or", "Ġwor ld", "Ċ Ċ")


@dataclass(frozen=True)
class TinyConfig:
    """Sizes that are all different, so that a mixed-up shape cannot pass."""

    architecture: str = "qwen2"
    quantisation: str = "Q8_0"
    layers: int = 3
    hidden: int = 64
    ffn: int = 96
    heads: int = 4
    kv_heads: int = 2
    context_tokens: int = 256
    rope_base: float = 10_000.0
    tied_output: bool = False
    qkv_bias: bool = True
    pre: str = "qwen2"
    seed: int = 0

    @property
    def kv_width(self) -> int:
        return self.hidden // self.heads * self.kv_heads


LLAMA = TinyConfig("llama", "Q4_1", tied_output=True, qkv_bias=False, pre="smollm")
QWEN2 = TinyConfig()


def byte_letters() -> list[str]:
    """GPT-2's 256 letters, in the order of the bytes they stand for."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(others)) for byte in range(256)]


def vocabulary() -> tuple[list[str], list[int]]:
    """Pieces and token types: control tokens, bytes, merged pieces, one user-defined."""
    merged = [merge.replace(" ", "") for merge in MERGES]
    pieces = [*CONTROL_TOKENS, *byte_letters(), *merged, "<tool>"]
    kinds = [gguf.TokenType.CONTROL] * len(CONTROL_TOKENS)
    kinds += [gguf.TokenType.NORMAL] * (256 + len(merged))
    return pieces, [*kinds, gguf.TokenType.USER_DEFINED]


def write_tiny_gguf(
    path: Path, config: TinyConfig = QWEN2, metadata: dict[str, Any] | None = None
) -> Path:
    """Write a file of `config`; `metadata` replaces string values by key, None leaves one out."""
    writer = gguf.GGUFWriter(path, config.architecture)
    pieces, kinds = vocabulary()
    texts: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": config.pre,
        "tokenizer.chat_template": CHATML,
        **(metadata or {}),
    }
    for key, value in texts.items():
        if value is not None:
            writer.add_string(key, value)
    writer.add_context_length(config.context_tokens)
    writer.add_embedding_length(config.hidden)
    writer.add_block_count(config.layers)
    writer.add_feed_forward_length(config.ffn)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_rope_freq_base(config.rope_base)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(pieces))
    writer.add_token_list(pieces)
    writer.add_token_types(kinds)
    writer.add_token_merges(list(MERGES))
    writer.add_eos_token_id(pieces.index("<|im_end|>"))
    writer.add_bos_token_id(pieces.index("<|endoftext|>"))
    for name, values in tiny_tensors(config, len(pieces)).items():
        _add_tensor(writer, name, values, config.quantisation)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny_tensors(config: TinyConfig, vocab_size: int) -> dict[str, npt.NDArray[np.float32]]:
    """Random weights, large enough that every part of the model matters to the logits.

    A tied head has the embedding's large rows: its input is scaled down, so that its logits too are
    a few units and not tens, and an absolute tolerance says the same for every configuration.
    """
    random = np.random.default_rng(config.seed)
    last = 0.125 if config.tied_output else 1.0

    def normal(*shape: int, around: float = 0.0, scale: float = 0.2) -> npt.NDArray[np.float32]:
        return random.normal(around, scale, shape).astype(np.float32)

    hidden, ffn, kv = config.hidden, config.ffn, config.kv_width
    tensors = {
        "token_embd.weight": normal(vocab_size, hidden, scale=1.0),
        "output_norm.weight": normal(hidden, around=1.0) * np.float32(last),
    }
    if not config.tied_output:
        tensors["output.weight"] = normal(vocab_size, hidden)
    for layer in range(config.layers):
        prefix = f"blk.{layer}"
        for name, width in (("q", hidden), ("k", kv), ("v", kv)):
            tensors[f"{prefix}.attn_{name}.weight"] = normal(width, hidden)
            if config.qkv_bias:
                tensors[f"{prefix}.attn_{name}.bias"] = normal(width)
        tensors[f"{prefix}.attn_output.weight"] = normal(hidden, hidden)
        tensors[f"{prefix}.ffn_gate.weight"] = normal(ffn, hidden)
        tensors[f"{prefix}.ffn_up.weight"] = normal(ffn, hidden)
        tensors[f"{prefix}.ffn_down.weight"] = normal(hidden, ffn)
        tensors[f"{prefix}.attn_norm.weight"] = normal(hidden, around=1.0)
        tensors[f"{prefix}.ffn_norm.weight"] = normal(hidden, around=1.0)
    return tensors


def _add_tensor(
    writer: gguf.GGUFWriter, name: str, values: npt.NDArray[np.float32], quantisation: str
) -> None:
    if values.ndim == 1:
        writer.add_tensor(name, values)
        return
    kind = gguf.GGMLQuantizationType[quantisation]
    writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
