"""A tiny random flagship model as a whole directory: weights, tokenizer, chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel

from tests.engine.models import twins
from tests.engine.models.omni_twin import tiny_config, tiny_twin, write_directory

SPECIAL = [
    "<|im_start|>",
    "<|im_end|>",
    "<|AUDIO|>",
    "<|IMAGE|>",
    "<|VIDEO|>",
    "<|audio_bos|>",
    "<|audio_eos|>",
    "<|vision_bos|>",
    "<|vision_eos|>",
]
IM_START, IM_END, AUDIO, IMAGE, VIDEO, AUDIO_BOS, AUDIO_EOS, VISION_BOS, VISION_EOS = range(
    256, 256 + len(SPECIAL)
)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


MISTRAL_SPECIAL = ["<s>", "</s>", "[INST]", "[/INST]", "[IMG]", "[IMG_BREAK]", "[IMG_END]"]
# As Mistral's third format has it: the system message's text goes into the last user message.
MISTRAL_TEMPLATE = """
{%- set system = messages[0]["content"] if messages[0]["role"] == "system" else none %}
{{- bos_token }}
{%- for m in messages if m["role"] != "system" %}
    {%- if m["role"] == "user" %}
        {{- "[INST]" + (system + "\n\n" if loop.last and system is not none else "") }}
        {{- m["content"] + "[/INST]" }}
    {%- else %}
        {{- m["content"] + eos_token }}
    {%- endif %}
{%- endfor %}"""


def write_mistral_tokenizer(folder: Path) -> None:
    """Bytes, one token for a full stop with an empty line behind it, and Mistral's special ones."""
    letters = ByteLevel.alphabet()
    vocab = {letter: i for i, letter in enumerate(sorted(letters))}
    vocab |= {"ĊĊ": 256, ".ĊĊ": 257}
    bpe = Tokenizer(models.BPE(vocab, [("Ċ", "Ċ"), (".", "ĊĊ")]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens(MISTRAL_SPECIAL)
    bpe.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": MISTRAL_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def write_pixtral(folder: Path) -> Any:
    """A whole directory of a tiny Pixtral; returns the model in it."""
    model = twins.pixtral(vocab_size=272).float()
    twins.save(model, folder)
    write_mistral_tokenizer(folder)
    return model


def write_tokenizer(folder: Path) -> None:
    """One token for each byte, and the special ones behind them."""
    alphabet = sorted(ByteLevel.alphabet())
    vocab = {letter: i for i, letter in enumerate(alphabet)}
    bpe = Tokenizer(models.BPE(vocab, []))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens(SPECIAL)
    bpe.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def served_twin() -> Any:
    """With a vocabulary that has room for every byte."""
    config = tiny_config()
    config.text_config.vocab_size = 280
    config.audio_token_id, config.image_token_id, config.video_token_id = AUDIO, IMAGE, VIDEO
    config.audio_start_token_id, config.audio_end_token_id = AUDIO_BOS, AUDIO_EOS
    config.vision_start_token_id, config.vision_end_token_id = VISION_BOS, VISION_EOS
    return tiny_twin(torch.float32, config=config)


def write_served(folder: Path) -> Any:
    """The whole directory; returns the model in it."""
    model = served_twin()
    write_directory(model, folder, "thinker.")
    write_tokenizer(folder)
    return model


def write_tiled(folder: Path, tile_px: int) -> None:
    """A directory of a model that cuts stills into tiles of that size."""
    twins.save(twins.llava_onevision(tile_px, vocab_size=280), folder)
    write_tokenizer(folder)
