"""Tiny random Whispers, saved by `transformers` as people's own directories are.

Their vocabulary is laid out as Whisper's is: bytes, a few merges, then the special tokens.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import WhisperConfig, WhisperForConditionalGeneration

from tests.engine.tiny_gguf import byte_letters

MERGES = (("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("Ġ", "a"), ("o", "r"))
LANGUAGES = ("en", "de", "zh")
SPECIALS = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{language}|>" for language in LANGUAGES),
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
    "<|0.00|>",
    "<|0.02|>",
)
WORDS = 256 + len(MERGES)
IDS = {name: WORDS + place for place, name in enumerate(SPECIALS)}
VOCABULARY = WORDS + len(SPECIALS)


@dataclass(frozen=True)
class Kind:
    """What tells one Whisper directory from another."""

    multilingual: bool = True
    mels: int = 80
    tied: bool = True
    sharded: bool = False


def write_whisper(directory: Path, kind: Kind = Kind()) -> Any:
    """Save one of that kind; the `transformers` model that was saved."""
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=kind.mels,
        d_model=64,
        encoder_layers=2,
        decoder_layers=3,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=96,
        decoder_ffn_dim=96,
        init_std=0.2,
        tie_word_embeddings=kind.tied,
        pad_token_id=IDS["<|endoftext|>"],
        bos_token_id=IDS["<|endoftext|>"],
        eos_token_id=IDS["<|endoftext|>"],
        decoder_start_token_id=IDS["<|startoftranscript|>"],
    )
    model: Any = WhisperForConditionalGeneration(config)
    model.eval()
    generation = model.generation_config
    generation.is_multilingual = kind.multilingual
    generation.no_timestamps_token_id = IDS["<|notimestamps|>"]
    generation.suppress_tokens = [7, *range(IDS["<|startoftranscript|>"], VOCABULARY)]
    generation.begin_suppress_tokens = [9]
    if kind.multilingual:
        generation.lang_to_id = {f"<|{code}|>": IDS[f"<|{code}|>"] for code in LANGUAGES}
        generation.task_to_id = {task: IDS[f"<|{task}|>"] for task in ("transcribe", "translate")}
    model.save_pretrained(directory, max_shard_size="100KB" if kind.sharded else "1GB")
    write_tokenizer(directory / "tokenizer.json")
    hints = json.loads((directory / "generation_config.json").read_text())
    hints["alignment_heads"] = [[2, 1]]
    (directory / "generation_config.json").write_text(json.dumps(hints))
    return model


def write_tokenizer(path: Path, specials: tuple[str, ...] = SPECIALS) -> None:
    """A byte-level tokenizer.json with those special tokens behind the words."""
    words = [*byte_letters(), *("".join(merge) for merge in MERGES)]
    vocabulary = {word: place for place, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(specials))
    tokenizer.save(str(path))
