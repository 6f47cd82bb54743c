"""Writes a model directory as its authors publish it, in full size, with random weights.

The names and shapes of the tensors are those that our loader asks for, so no copy of the model is
needed to know them; the weights are made and written shard by shard, and those that are there stay.
`published.json` has each model's config.json, as far as it says anything about sizes.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
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
MARK = "written.json"
"""In every directory that was written here, with its config.json: no other is touched."""
PART = ".part"
SHARD_BYTES = 1 << 29
DISK_MARGIN_BYTES = 1_000_000_000
"""Left to everything else on the disk."""
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


class DirectoryFailed(Exception):
    """A directory that is not, or cannot be, written: one sentence, with a remedy."""


def write(folder: Path, config: Mapping[str, Any], shard_bytes: int = SHARD_BYTES) -> int:
    """The directory of a model with that config.json, bf16; its number of weights. Raises
    `DirectoryFailed`, as the two steps do."""
    return write_weights(folder, describe(folder, config), config, shard_bytes)


def describe(folder: Path, config: Mapping[str, Any]) -> dict[str, Shape]:
    """Write all but the weights; our names of the tensors, with their shapes. Raises
    `DirectoryFailed` for a folder with files that this benchmark has not written."""
    mark = folder / MARK
    if folder.exists() and not mark.exists() and any(folder.iterdir()):
        raise DirectoryFailed(
            f"{folder} has files that this benchmark did not write (there is no {MARK}), and it "
            "would replace them: name another --folder, or remove that one"
        )
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(config)
    mark.write_text(text)
    (folder / "config.json").write_text(text)
    family = FAMILIES[config["model_type"]]
    _write_words(folder, family, {**config, **config.get("text_config", {})}["vocab_size"])
    asked = _Asked(tied=bool(config.get("tie_word_embeddings")))
    load(folder, Loading(tensors=lambda *_: asked))
    return asked.shapes


def write_weights(
    folder: Path,
    shapes: Mapping[str, Shape],
    config: Mapping[str, Any],
    shard_bytes: int = SHARD_BYTES,
) -> int:
    """Write the shards that are not there yet, and remove others; the number of weights. A tensor
    depends on its name alone, so the shards of an interrupted run are kept. Needs the memory of two
    shards, which hold at least one tensor each. Raises `DirectoryFailed` if the disk is full; what
    it would need is known before anything is written."""
    prefixes = FAMILIES[config["model_type"]].prefixes
    random = RandomTensors(torch.bfloat16)
    shards = list(_shards(shapes, shard_bytes))
    files = [f"model-{i:05}-of-{len(shards):05}.safetensors" for i in range(1, len(shards) + 1)]
    stored = [{_stored(name, prefixes): shapes[name] for name in names} for names in shards]
    missing = {
        file
        for file, tensors in zip(files, stored, strict=True)
        if not _is_complete(folder / file, tensors)
    }
    for old in (*folder.glob("*.safetensors"), *folder.glob(f"*{PART}")):
        if old.name not in files or old.name in missing:
            old.unlink()
    sizes = {file: _nbytes(tensors) for file, tensors in zip(files, stored, strict=True)}
    _check_disk(folder, sum(sizes[file] for file in missing), sum(sizes.values()))
    for number, (names, file) in enumerate(zip(shards, files, strict=True), 1):
        if file in missing:
            made = {_stored(name, prefixes): random.take(name, *shapes[name]) for name in names}
            _save(made, folder / file)
        done = sum(sizes[each] for each in files[:number])
        kept = "" if file in missing else ", it was there"
        report.say(f"shard {number} of {len(shards)}: {done / 1e9:.1f} GB written{kept}")
    total = sum(map(math.prod, shapes.values()))
    where = {name: file for file, names in zip(files, stored, strict=True) for name in names}
    index = {"metadata": {"total_size": 2 * total}, "weight_map": where}
    (folder / INDEX).write_text(json.dumps(index))
    return total


def _is_complete(path: Path, shapes: Mapping[str, Shape]) -> bool:
    """Whether a shard has all these tensors. A file that ends early cannot be opened."""
    try:
        with safe_open(path, "pt") as file:
            found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError):
        return False
    return found == dict(shapes)


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    """All of the file or nothing, whatever ends this."""
    part = path.with_suffix(PART)
    try:
        save_file(tensors, part)
        part.rename(path)
    except (OSError, SafetensorError) as error:
        raise DirectoryFailed(
            f"cannot write {path}: {error}. What is complete is kept: mend that, and run the same "
            "command again"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _check_disk(folder: Path, needed_bytes: int, total_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if needed_bytes and needed_bytes + DISK_MARGIN_BYTES > free_bytes:
        raise DirectoryFailed(
            f"{folder} needs {needed_bytes / 1e9:.1f} GB more for {total_bytes / 1e9:.1f} GB of "
            f"weights, and {DISK_MARGIN_BYTES / 1e9:.1f} GB to spare; {free_bytes / 1e9:.1f} GB "
            "are free: free some, or name a --folder on another disk"
        )


def _nbytes(shapes: Mapping[str, Shape]) -> int:
    return 2 * sum(map(math.prod, shapes.values()))


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
