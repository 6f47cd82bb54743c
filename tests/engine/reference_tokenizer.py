"""`transformers`' own tokenizers for the vocabularies in our GGUF files.

Its loader for GGUF files is not used: it takes most of a minute, and it leaves SmolLM2's rule that
every digit stands alone out (GPT-2's tokenizer lacks it too, see `splits_digits`).
"""

from __future__ import annotations

from typing import Any

from tokenizers import pre_tokenizers
from transformers import AddedToken, GPT2Tokenizer, Qwen2Tokenizer

from headstart.engine.checkpoints.gguf import GgufFile


def reference_tokenizer(file: GgufFile) -> Any:
    """A tokenizer made by `transformers` from the lists in `file`."""
    pieces, kinds = (
        file.metadata["tokenizer.ggml.tokens"],
        file.metadata["tokenizer.ggml.token_type"],
    )
    merges = [tuple(merge.split(" ")) for merge in file.metadata["tokenizer.ggml.merges"]]
    maker = {"qwen2": Qwen2Tokenizer, "smollm": GPT2Tokenizer}[file.metadata["tokenizer.ggml.pre"]]
    tokenizer = maker(vocab={p: i for i, p in enumerate(pieces)}, merges=merges)
    tokenizer.add_tokens(
        [
            AddedToken(piece, normalized=False, special=kind == 3)
            for piece, kind in zip(pieces, kinds, strict=True)
            if kind in (3, 4)
        ]
    )
    if maker is GPT2Tokenizer:
        splits_digits(tokenizer)
    tokenizer.chat_template = file.metadata["tokenizer.chat_template"]
    return tokenizer


def splits_digits(tokenizer: Any) -> None:
    """SmolLM2's published tokenizer.json puts this rule before GPT-2's."""
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), backend.pre_tokenizer]
    )
