"""Sources of a served model: a directory, a directory's sizes with random weights, or a published
size with random weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from headstart.engine.config import EngineConfig, is_directory
from headstart.engine.device.choice import place_of
from headstart.engine.device.decoder import OnDevice
from headstart.engine.errors import BadSettings, BadWeights
from headstart.engine.models.checkpoint.directory import ModelDirectory
from headstart.engine.models.checkpoint.tensors import RandomTensors, Tensors
from headstart.engine.models.checkpoint.words import SETTINGS, TOKENIZER, Words, stand_in, words_of
from headstart.engine.models.decoder.choice import in_int8, in_torch
from headstart.engine.models.families import Loading, load, vision_folder
from headstart.engine.models.perception.interface import StreamModel
from headstart.engine.models.sizes import QWEN2_VL, SIZES, config_of, sized
from headstart.kernels.native import default_backend

EXPECTED = f"config.json, *.safetensors, {TOKENIZER} and {SETTINGS}"
_SHOWN_FILES = 5


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model to serve. `on` builds it on other tensors than its own. Methods raise `BadWeights`
    naming the file, field or tensor."""

    name: str
    words: Callable[[], Words]
    load: Callable[[Loading], StreamModel]
    on: Callable[[Loading, Tensors], StreamModel]


def source_of(config: EngineConfig) -> ModelSource | None:
    """The model that the settings name; None for a packaged one. Raises `BadSettings`, or
    `BadWeights` for a directory without a model."""
    if config.adapter not in ("auto", "off") and (config.size or is_directory(config.model)):
        expected = "auto or off: only packaged models take a LoRA"
        raise BadSettings("adapter", expected, config.adapter)
    random = config.weights == "dummy"
    if config.size is not None:
        return _published(config.size)
    if not is_directory(config.model):
        if random:
            expected = f"one of {', '.join(SIZES)}, or a model directory in its place"
            raise BadSettings("size", expected, config.size)
        return None
    folder = checked(Path(config.model).expanduser(), stored=not random)
    return _sized_like(folder) if random else _directory(folder)


def vision_source_of(config: EngineConfig) -> ModelSource:
    """What of the model that the settings name encodes pictures: itself, or the model that a
    composite has. Raises as `source_of` does, and `BadSettings` for a packaged model."""
    source = source_of(config)
    if source is None:
        raise BadSettings("encoder", "thread: packaged models label their pictures", "process")
    if config.size is not None:
        return source
    folder = vision_folder(checked(Path(config.model).expanduser(), stored=False))
    return _sized_like(folder) if config.weights == "dummy" else _directory(folder)


def vision_settings(config: EngineConfig) -> bytes:
    """What beside weights decides how a model's pictures are encoded: its own settings, by its
    files, and ours. Raises `BadWeights`."""
    facts: list[object] = [config.size]
    if config.size is None:
        directory = ModelDirectory(vision_folder(Path(config.model).expanduser()))
        preprocessor = directory.optional("preprocessor_config.json")
        facts = [directory.config.values, preprocessor.values if preprocessor else None]
    how = loading_of(config)
    facts += [str(how.dtype), how.int8_encoders, config.weights == "dummy"]
    return json.dumps(facts, sort_keys=True).encode()


def checked(folder: Path, *, stored: bool = True) -> Path:
    """`folder`, resolved. Raises `BadWeights` if a required kind of file is missing; weights are
    required only if `stored`."""
    if not folder.is_dir():
        raise BadWeights(folder, "model directory", EXPECTED, "no such directory")
    names = sorted(path.name for path in folder.iterdir())
    needed = ["config.json", TOKENIZER, SETTINGS, *([".safetensors"] if stored else [])]
    missing = [end for end in needed if not any(name.endswith(end) for name in names)]
    if missing:
        shown = ", ".join(names[:_SHOWN_FILES])
        more = f" and {len(names) - _SHOWN_FILES} more" if len(names) > _SHOWN_FILES else ""
        got = f"no {' and no '.join(missing)}, but {shown}{more}" if names else "an empty folder"
        raise BadWeights(folder, "model directory", EXPECTED, got)
    return folder.resolve()


def loading_of(config: EngineConfig) -> Loading:
    """Loading options from the settings. Raises `NoDevice`."""
    form, place = config.weights, place_of(config)
    if form in ("auto", "dummy"):
        form = "bf16" if place or default_backend() == "reference" else "int8"
    build = in_int8 if form == "int8" else in_torch
    int8_encoders = config.encoder_weights == "int8" and form != "fp32"
    return Loading(
        dtype=torch.float32 if form == "fp32" else torch.bfloat16,
        build=build if place is None else OnDevice(place, form == "int8"),
        int8_encoders=int8_encoders,
        encoders=None if int8_encoders else place,  # those run on the CPU's kernels alone
    )


def _directory(folder: Path) -> ModelSource:
    return ModelSource(
        folder.name, lambda: words_of(folder), lambda how: load(folder, how), partial(_on, folder)
    )


def _on(folder: Path, how: Loading, tensors: Tensors) -> StreamModel:
    return load(folder, replace(how, tensors=lambda _directory, _rename: tensors))


def _sized_like(folder: Path) -> ModelSource:
    """The directory's sizes, tokenizer and template, with random weights."""
    return _random(f"{folder.name}-dummy", lambda: words_of(folder), partial(_on, folder))


def _published(size: str) -> ModelSource:
    text = config_of(size).part("text_config")

    def on(how: Loading, tensors: Tensors) -> StreamModel:
        held = how.part(tensors)
        return sized(size, held, how.build, answer_opening=how.answer_opening)

    name = f"{size}-dummy" if size == QWEN2_VL else f"qwen2_5_omni-{size}-dummy"
    return _random(name, lambda: stand_in(text.integer("vocab_size")), on)


def _random(
    name: str, words: Callable[[], Words], on: Callable[[Loading, Tensors], StreamModel]
) -> ModelSource:
    def loaded(how: Loading) -> StreamModel:
        return on(how, RandomTensors(how.dtype, tick=lambda made: how.progress(made, 0)))

    return ModelSource(name, words, loaded, on)
