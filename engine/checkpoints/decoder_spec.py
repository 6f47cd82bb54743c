"""The sizes and constants of a decoder, from a GGUF file's metadata."""

from __future__ import annotations

from dataclasses import dataclass

from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.errors import BadWeights, UnsupportedModel

ARCHITECTURES = ("llama", "qwen2")


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """Sizes and constants of one decoder.

    `interleaved_rope_rows`: rows of q and k pair neighbours for rotation, as llama.cpp stores the
    llama architecture. Our kernels rotate halves, so the rows are reordered when loaded.
    """

    architecture: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    context_tokens: int
    rope_base: float
    rms_eps: float
    qkv_bias: bool
    tied_output: bool

    @property
    def interleaved_rope_rows(self) -> bool:
        return self.architecture == "llama"

    @property
    def q_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @classmethod
    def from_gguf(cls, file: GgufFile) -> DecoderSpec:
        """Raises `UnsupportedModel` or `BadWeights` for a model that is not supported."""
        arch = file.architecture
        if arch not in ARCHITECTURES:
            raise UnsupportedModel(file.path, "architecture", ARCHITECTURES, arch)
        _require_plain_rope(file, arch)
        hidden = _size(file, f"{arch}.embedding_length")
        heads = _size(file, f"{arch}.attention.head_count")
        kv_heads = _size(file, f"{arch}.attention.head_count_kv", default=heads)
        head_dim = _size(file, f"{arch}.attention.key_length", default=hidden // heads)
        if heads % kv_heads:
            raise BadWeights(file.path, "head_count", f"a multiple of {kv_heads}", str(heads))
        rotated = _size(file, f"{arch}.rope.dimension_count", default=head_dim)
        if rotated != head_dim or head_dim % 2:
            raise UnsupportedModel(
                file.path, "rotated dimensions", [f"all {head_dim} of an even head"], str(rotated)
            )
        return cls(
            architecture=arch,
            layers=_size(file, f"{arch}.block_count"),
            hidden=hidden,
            ffn=_size(file, f"{arch}.feed_forward_length"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocab_size=len(file.require("tokenizer.ggml.tokens", list)),
            context_tokens=_size(file, f"{arch}.context_length"),
            rope_base=file.get(f"{arch}.rope.freq_base", float, 10_000.0),
            rms_eps=file.require(f"{arch}.attention.layer_norm_rms_epsilon", float),
            qkv_bias="blk.0.attn_q.bias" in file.tensors,
            tied_output="output.weight" not in file.tensors,
        )


def _size(file: GgufFile, key: str, default: int | None = None) -> int:
    value = file.require(key, int) if default is None else file.get(key, int, default)
    if value < 1:
        raise BadWeights(file.path, f"metadata {key}", "at least 1", str(value))
    return value


def _require_plain_rope(file: GgufFile, arch: str) -> None:
    scaling = file.get(f"{arch}.rope.scaling.type", str, "none")
    if scaling != "none":
        raise UnsupportedModel(file.path, "rope scaling", ["none"], scaling)
    if "rope_freqs.weight" in file.tensors:
        raise UnsupportedModel(file.path, "rope frequencies", ["none of their own"], "a tensor")
