"""Our Whisper's tensors in `transformers`' implementation: the reference, for tests too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import WhisperConfig, WhisperForConditionalGeneration

from headstart.engine.asr.whisper.checkpoint import Checkpoint
from headstart.engine.asr.whisper.vocabulary import ExactVocabulary

_RENAMES = (
    ("layers.", "model.{part}.layers."),
    ("conv", "model.{part}.conv"),
    ("norm.", "model.{part}.layer_norm."),
    ("positions", "model.{part}.embed_positions.weight"),
)
_BLOCKS = (
    ("self_norm", "self_attn_layer_norm"),
    ("cross_norm", "encoder_attn_layer_norm"),
    ("attention_norm", "self_attn_layer_norm"),
    ("mlp_norm", "final_layer_norm"),
    ("self_attention.", "self_attn."),
    ("cross_attention.", "encoder_attn."),
    (".attention.", ".self_attn."),
    ("mlp.up", "fc1"),
    ("mlp.down", "fc2"),
    ("out.", "out_proj."),
)


def hugging_face_state(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """All tensors under their Hugging Face names, without key biases, as there."""
    settings = checkpoint.settings
    state = {}
    for part, module in (("encoder", checkpoint.encoder), ("decoder", checkpoint.decoder)):
        for name, tensor in module.state_dict().items():
            for start, there in _RENAMES:
                if name.startswith(start):
                    theirs = there.format(part=part) + name[len(start) :]
            for ours, there in _BLOCKS:
                theirs = theirs.replace(ours, there)
            joined = next((j for j in (".qkv.", ".kv.", ".q.") if j in theirs), None)
            if joined is None:
                state[theirs] = tensor
                continue
            letters = joined.strip(".")
            for letter, piece in zip(letters, tensor.chunk(len(letters)), strict=True):
                if not (letter == "k" and theirs.endswith("bias")):
                    state[theirs.replace(joined, f".{letter}_proj.")] = piece.contiguous()
    every = torch.arange(settings.vocabulary)
    vocabulary = checkpoint.decoder.vocabulary
    state["model.decoder.embed_tokens.weight"] = vocabulary.embed(every)
    head = _own_head(checkpoint)
    if head is not None:
        state["proj_out.weight"] = head
    return state


def _own_head(checkpoint: Checkpoint) -> Tensor | None:
    """The vocabulary head, if it is not the embedding."""
    vocabulary = checkpoint.decoder.vocabulary
    assert isinstance(vocabulary, ExactVocabulary), "expected exact weights"
    return vocabulary.head


def hugging_face_config(checkpoint: Checkpoint) -> WhisperConfig:
    """The same sizes as a `transformers` config."""
    settings = checkpoint.settings
    return WhisperConfig(
        vocab_size=settings.vocabulary,
        num_mel_bins=settings.mels,
        d_model=settings.width,
        encoder_layers=settings.encoder_layers,
        decoder_layers=settings.decoder_layers,
        encoder_attention_heads=settings.heads,
        decoder_attention_heads=settings.heads,
        encoder_ffn_dim=settings.ffn,
        decoder_ffn_dim=settings.ffn,
        max_source_positions=settings.audio_positions,
        max_target_positions=settings.text_positions,
        tie_word_embeddings=_own_head(checkpoint) is None,
    )


def transformers_whisper(checkpoint: Checkpoint) -> Any:
    """The reference model; loading is strict except for a head that is tied to the embedding."""
    config = hugging_face_config(checkpoint)
    config._attn_implementation = "eager"  # returns attention weights
    model: Any = WhisperForConditionalGeneration(config)
    model.eval()
    missing = model.load_state_dict(hugging_face_state(checkpoint), strict=False)
    assert missing.unexpected_keys == []
    assert set(missing.missing_keys) <= {"proj_out.weight"}
    model.tie_weights()
    return model
