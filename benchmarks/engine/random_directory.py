"""Writes a model directory as its authors publish it, in full size, with random weights.

The names and shapes of the tensors are those that our loader asks for, so no copy of the model is
needed to know them; the weights are made and written shard by shard. `published.json` has each
model's config.json, as far as it says anything about sizes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor

from headstart.benchmarks import report
from headstart.engine.models.checkpoint.tensors import RandomTensors, renamed
from headstart.engine.models.families import Loading, load

CONFIGS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("published.json").read_text()
)
INDEX = "model.safetensors.index.json"
SHARD_BYTES = 1 << 29
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """How a family's checkpoints name tensors (`prefixes`: ours to theirs) and spell a chat.
    `specials`: of the tokenizer, by id; `letters_from`: the id of byte 0."""

    prefixes: Mapping[str, str]
    specials: Mapping[int, str]
    letters_from: int
    eos: str
    template: str


FAMILIES = {
    "qwen2_5_vl": Family(
        {"vision.": "visual.", "decoder.": "model.", "lm_head.": "lm_head."},
        {
            151_643: "<|endoftext|>",
            151_644: "<|im_start|>",
            151_645: "<|im_end|>",
            151_652: "<|vision_start|>",
            151_653: "<|vision_end|>",
            151_655: "<|image_pad|>",
            151_656: "<|video_pad|>",
        },
        0,
        "<|im_end|>",
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    ),
    "llava": Family(
        {
            "vision.": "vision_tower.",
            "projector.": "multi_modal_projector.",
            "decoder.": "language_model.model.",
            "lm_head.": "language_model.lm_head.",
        },
        {
            1: "<s>",
            2: "</s>",
            3: "[INST]",
            4: "[/INST]",
            10: "[IMG]",
            12: "[IMG_BREAK]",
            13: "[IMG_END]",
        },
        1000,
        "</s>",
        "{{ '<s>' }}{% for m in messages %}{% if m['role'] == 'assistant' %}{{ m['content'] }}</s>"
        "{% else %}[INST]{{ m['content'] }}[/INST]{% endif %}{% endfor %}",
    ),
}


class _Asked:
    """Tensors without data, which notes their names and shapes."""

    def __init__(self, *, tied: bool) -> None:
        self.shapes: dict[str, Shape] = {}
        self._tied = tied

    def has(self, name: str) -> bool:
        return not (self._tied and name == "lm_head.weight")

    def copied(self, name: str) -> None:
        """Nothing to release."""

    def take(self, name: str, *shape: int) -> Tensor:
        self.shapes[name] = shape
        return torch.empty(shape, dtype=torch.bfloat16, device="meta")


def write(folder: Path, config: Mapping[str, Any], shard_bytes: int = SHARD_BYTES) -> int:
    """The directory of a model with that config.json, bf16; its number of weights. Nothing is
    written again if all of it is there. Needs the memory of two shards, which hold at least one
    tensor each."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(config)
    (folder / "config.json").write_text(text)
    family = FAMILIES[config["model_type"]]
    vocabulary = {**config, **config.get("text_config", {})}["vocab_size"]
    _write_words(folder, family, vocabulary)
    asked = _Asked(tied=bool(config.get("tie_word_embeddings")))
    load(folder, Loading(tensors=lambda *_: asked))
    shapes = asked.shapes
    written = folder / "written.json"
    if not written.exists() or written.read_text() != text:
        # First: a model that is half written must not pass for the one that was here before.
        written.unlink(missing_ok=True)
        for old in folder.glob("*.safetensors"):
            old.unlink()
        _write_weights(folder, shapes, family.prefixes, shard_bytes)
        written.write_text(text)
    return sum(map(math.prod, shapes.values()))


def _write_weights(
    folder: Path, shapes: Mapping[str, Shape], prefixes: Mapping[str, str], shard_bytes: int
) -> None:
    random = RandomTensors(torch.bfloat16)
    shards = list(_shards(shapes, shard_bytes))
    total = sum(map(math.prod, shapes.values()))
    where: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        stored = {_stored(name, prefixes): random.take(name, *shapes[name]) for name in names}
        save_file(stored, folder / file)
        where |= dict.fromkeys(stored, file)
        report.say(f"shard {number} of {len(shards)}: {random.nbytes / 1e9:.1f} GB written")
    index = {"metadata": {"total_size": 2 * total}, "weight_map": where}
    (folder / INDEX).write_text(json.dumps(index))


def _shards(shapes: Mapping[str, Shape], most_bytes: int) -> Iterator[list[str]]:
    """Names, in order, so many that their tensors are within `most_bytes`, or one."""
    names: list[str] = []
    size = 0
    for name, shape in shapes.items():
        nbytes = 2 * math.prod(shape)
        if names and size + nbytes > most_bytes:
            yield names
            names, size = [], 0
        names.append(name)
        size += nbytes
    yield names


def _stored(name: str, prefixes: Mapping[str, str]) -> str:
    """Its name in a checkpoint."""
    stored = renamed(name, prefixes)
    assert stored is not None, name
    return stored


def _write_words(folder: Path, family: Family, vocabulary: int) -> None:
    """A tokenizer with a token for each byte and the family's special ones at their ids; all others
    are spelled as their number, so that any answer can be read."""
    pieces = [f"Ġ{token}" for token in range(vocabulary)]
    letters: Sequence[str] = sorted(ByteLevel.alphabet())
    pieces[family.letters_from : family.letters_from + len(letters)] = letters
    for token, spelling in family.specials.items():
        pieces[token] = spelling
    bpe = Tokenizer(models.BPE({piece: token for token, piece in enumerate(pieces)}, []))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens(list(family.specials.values()))
    bpe.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": family.eos, "chat_template": family.template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
