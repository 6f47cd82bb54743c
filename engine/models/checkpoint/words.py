"""A model directory's tokenizer and chat template, or a stand-in."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer as BpeTokenizer
from tokenizers import models, pre_tokenizers

from headstart.engine.chat.template import ChatFormat
from headstart.engine.chat.tokenizer import CONTROL, NORMAL, Tokenizer, letter_of_byte
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.errors import BadWeights
from headstart.engine.models.checkpoint.directory import Config, ModelDirectory
from headstart.engine.weights import WeightsMissing, locate

log = logging.getLogger("headstart.engine")

SETTINGS, TOKENIZER = "tokenizer_config.json", "tokenizer.json"

# Packaged weights with Qwen2.5's vocabulary, which the flagship uses too.
_SAME_VOCABULARY = "qwen2.5-coder-0.5b"

# Qwen2.5-Omni's special tokens by id.
_SPECIALS = {
    151_644: "<|im_start|>",
    151_645: "<|im_end|>",
    151_646: "<|AUDIO|>",
    151_647: "<|audio_bos|>",
    151_648: "<|audio_eos|>",
    151_652: "<|vision_bos|>",
    151_653: "<|vision_eos|>",
    151_655: "<|IMAGE|>",
    151_656: "<|VIDEO|>",
}
_END = 151_645
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Words(NamedTuple):
    """A tokenizer and the chat template in its tokens."""

    tokenizer: Tokenizer
    chat: ChatFormat


def words_of(folder: Path) -> Words:
    """The tokenizer.json and chat template of `folder`. Raises `BadWeights` naming what is
    missing."""
    directory = ModelDirectory(folder)
    settings = directory.optional(SETTINGS)
    if settings is None:
        raise BadWeights(folder / SETTINGS, "file", "a file", "none")
    tokenizer = Tokenizer.from_json(folder / TOKENIZER, _spelled(settings, "eos_token"))
    bos = None
    if "bos_token" in settings:
        ids = tokenizer.encode(_spelled(settings, "bos_token"), special=True)
        bos = ids[0] if len(ids) == 1 else None
    jinja, other = folder / "chat_template.jinja", directory.optional("chat_template.json")
    if jinja.exists():
        return Words(tokenizer, ChatFormat.from_template(jinja.read_text(), tokenizer, jinja, bos))
    source = other if other is not None and "chat_template" in other else settings
    template = source.text("chat_template")
    return Words(tokenizer, ChatFormat.from_template(template, tokenizer, source.path, bos))


def _spelled(settings: Config, key: str) -> str:
    """A special token's letters, which some versions write as an object."""
    token = settings.values.get(key)
    return str(token["content"]) if isinstance(token, dict) else settings.text(key)


def stand_in(vocab_size: int) -> Words:
    """Tokenizer and template for random weights of a published size, which have no files.

    Qwen2.5's vocabulary if weights that contain it are fetched, so that token counts are realistic;
    else `byte_words`.
    """
    try:
        file = GgufFile(locate(_SAME_VOCABULARY))
    except WeightsMissing:
        log.info("tokenizer: one token per byte, as %s is not fetched", _SAME_VOCABULARY)
        return byte_words(vocab_size)
    tokenizer = Tokenizer.from_gguf(file)
    words = Words(tokenizer, ChatFormat.from_gguf(file, tokenizer))
    file.close()
    log.info("tokenizer: the vocabulary of %s", _SAME_VOCABULARY)
    return words


def byte_words(vocab_size: int) -> Words:
    """One token per byte of text, Qwen2.5-Omni's special tokens at their ids, and all other tokens
    spelled as their number, so that any output can be read."""
    letters = letter_of_byte()
    vocab = {letter: byte for byte, letter in enumerate(letters)}
    bpe = BpeTokenizer(models.BPE(vocab, []))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    space = letters[ord(" ")]
    pieces = [*letters, *(f"{space}{token}" for token in range(256, vocab_size))]
    kinds = [NORMAL] * vocab_size
    for token, spelling in _SPECIALS.items():
        pieces[token], kinds[token] = spelling, CONTROL
    tokenizer = Tokenizer(bpe, pieces, kinds, _END)
    return Words(tokenizer, ChatFormat.from_template(_CHATML, tokenizer, Path("built in")))
