"""A GGUF file of random codes in the sizes and formats of `small`, for a machine that has no file
of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from headstart.engine.chat.tokenizer import letter_of_byte
from headstart.kernels.qlinear.formats import FORMATS

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
NORMAL, CONTROL = 1, 3


@dataclass(frozen=True, slots=True)
class PackedSizes:
    """Of a Qwen2 decoder; `ffn` is a multiple of 256, `hidden` of 32."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int

    @property
    def kv_width(self) -> int:
        return self.hidden // self.heads * self.kv_heads

    def matrices(self) -> dict[str, tuple[str, int, int]]:
        """Format, rows and columns by name, as llama.cpp's Q4_K_M has them at these sizes."""
        made = {
            "token_embd": ("Q5_0", self.vocabulary, self.hidden),
            "output": ("Q8_0", self.vocabulary, self.hidden),
        }
        for i in range(self.layers):
            made |= {
                f"blk.{i}.attn_q": ("Q5_0", self.hidden, self.hidden),
                f"blk.{i}.attn_k": ("Q5_0", self.kv_width, self.hidden),
                f"blk.{i}.attn_v": ("Q8_0", self.kv_width, self.hidden),
                f"blk.{i}.attn_output": ("Q5_0", self.hidden, self.hidden),
                f"blk.{i}.ffn_gate": ("Q5_0", self.ffn, self.hidden),
                f"blk.{i}.ffn_up": ("Q5_0", self.ffn, self.hidden),
                f"blk.{i}.ffn_down": ("Q4_K" if i % 2 else "Q6_K", self.hidden, self.ffn),
            }
        return made

    @property
    def weights_bytes(self) -> int:
        """Of all matrices."""
        return sum(_bytes(*matrix) for matrix in self.matrices().values())

    @property
    def step_bytes(self) -> int:
        """Of those that each decode step reads: all but the embedding."""
        return self.weights_bytes - _bytes(*self.matrices()["token_embd"])


def _bytes(kind: str, rows: int, cols: int) -> int:
    form = FORMATS[kind]
    return rows * cols // form.block * form.block_bytes


SMALL = PackedSizes(896, 24, 14, 2, 4864, 151_936)
TINY = PackedSizes(64, 2, 4, 2, 256, 512)


def write(path: Path, sizes: PackedSizes) -> Path:
    """Write the file; each byte of text is a token, all others are spelled as their number."""
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_string("tokenizer.ggml.model", "gpt2")
    writer.add_string("tokenizer.ggml.pre", "qwen2")
    writer.add_string("tokenizer.chat_template", CHATML)
    letters = letter_of_byte()
    merged = letters[ord("t")] + letters[ord("h")]
    first = len(CONTROLS) + len(letters) + 1
    space = letters[ord(" ")]
    numbered = [f"{space}{token}" for token in range(first, sizes.vocabulary)]
    writer.add_token_list([*CONTROLS, *letters, merged, *numbered])
    kinds = [CONTROL] * len(CONTROLS) + [NORMAL] * (sizes.vocabulary - len(CONTROLS))
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merged)])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_context_length(32_768)
    writer.add_embedding_length(sizes.hidden)
    writer.add_block_count(sizes.layers)
    writer.add_feed_forward_length(sizes.ffn)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(sizes.vocabulary)
    _add_vectors(writer, sizes)
    random = np.random.default_rng(0)
    for name, (kind, rows, cols) in sizes.matrices().items():
        raw = _random_codes(random, kind, rows, cols)
        writer.add_tensor(f"{name}.weight", raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_vectors(writer: gguf.GGUFWriter, sizes: PackedSizes) -> None:
    norm = np.ones(sizes.hidden, np.float32)
    writer.add_tensor("output_norm.weight", norm)
    for i in range(sizes.layers):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", norm)
        for name, width in (("q", sizes.hidden), ("k", sizes.kv_width), ("v", sizes.kv_width)):
            writer.add_tensor(f"blk.{i}.attn_{name}.bias", np.zeros(width, np.float32))


def _random_codes(
    random: np.random.Generator, kind: str, rows: int, cols: int
) -> npt.NDArray[np.uint8]:
    """uint8 [rows, bytes of a row]: random codes under small finite scales."""
    form = FORMATS[kind]
    raw = random.integers(0, 256, (rows * cols // form.block, form.block_bytes), dtype=np.uint8)
    scale = np.float16(2.0**-9 if kind in ("Q4_K", "Q6_K") else 2.0**-8)
    for at in (208,) if kind == "Q6_K" else (0, 2) if form.affine else (0,):
        raw[:, at : at + 2] = np.array([scale]).view(np.uint8)
    return raw.reshape(rows, -1)
