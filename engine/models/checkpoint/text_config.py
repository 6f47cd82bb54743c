"""A decoder's sizes from a `transformers` config.json, of any version."""

from __future__ import annotations

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.errors import UnsupportedModel
from headstart.engine.models.checkpoint.directory import Config

_PLAIN_ROPE = ("default", "mrope", "none")
# What `transformers` takes for a Mistral whose config.json leaves it out, as Pixtral's does.
_MISTRAL_HEADS, _MISTRAL_KV_HEADS, _MISTRAL_WINDOW = 32, 8, 4096


def decoder_spec(text: Config, *, tied_default: bool = False) -> DecoderSpec:
    """Raises `BadWeights`, or `UnsupportedModel` for what our decoder does not implement."""
    kind = text.text("model_type", "qwen2")
    rope = _rope(text)
    rope_type = rope.text("rope_type", rope.text("type", "default")) if rope else "default"
    if rope_type not in _PLAIN_ROPE:
        raise UnsupportedModel(text.path, "rope type", _PLAIN_ROPE, rope_type)
    if text.flag("use_sliding_window", False):
        raise UnsupportedModel(text.path, "attention", ["full"], "sliding windows")
    if text.text("hidden_act", "silu") != "silu":
        raise UnsupportedModel(text.path, "hidden_act", ["silu"], text.text("hidden_act"))
    mistral = kind == "mistral"
    heads = text.integer("num_attention_heads", _MISTRAL_HEADS if mistral else None)
    hidden = text.integer("hidden_size")
    base = text.number("rope_theta", 10_000.0)
    return DecoderSpec(
        architecture="qwen2" if "qwen2" in kind else "llama",
        layers=text.integer("num_hidden_layers"),
        hidden=hidden,
        ffn=text.integer("intermediate_size"),
        heads=heads,
        kv_heads=text.integer("num_key_value_heads", _MISTRAL_KV_HEADS if mistral else heads),
        head_dim=text.integer("head_dim", hidden // heads),
        vocab_size=text.integer("vocab_size"),
        context_tokens=_context_tokens(text, mistral),
        rope_base=rope.number("rope_theta", base) if rope else base,
        rms_eps=text.number("rms_norm_eps", 1e-6),
        qkv_bias="qwen2" in kind,
        tied_output=text.flag("tie_word_embeddings", tied_default),
    )


def _context_tokens(text: Config, mistral: bool) -> int:
    """The longest context that is exact: with sliding windows, one window, within which they are
    full attention."""
    longest = text.integer("max_position_embeddings")
    if not mistral or text.values.get("sliding_window", 0) is None:  # null: no windows
        return longest
    return min(longest, text.integer("sliding_window", _MISTRAL_WINDOW))


def rope_sections(text: Config) -> tuple[int, ...]:
    """Numbers of frequencies that rotate with time, height and width. Raises `UnsupportedModel` if
    they are interleaved."""
    rope = _rope(text)
    if rope is None:
        return (16, 24, 24)
    if rope.flag("mrope_interleaved", False):
        raise UnsupportedModel(text.path, "mrope sections", ["one behind the other"], "interleaved")
    return tuple(int(n) for n in rope.numbers("mrope_section", [16, 24, 24]))


def _rope(text: Config) -> Config | None:
    for key in ("rope_parameters", "rope_scaling"):
        if key in text:
            return text.part(key)
    return None
