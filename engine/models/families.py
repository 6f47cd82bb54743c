"""The model families: which one a directory holds, and how to load it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from headstart.engine.asr.mel import MaxPolicy
from headstart.engine.device.encoders import PlacedTensors
from headstart.engine.device.place import Place
from headstart.engine.errors import UnsupportedModel
from headstart.engine.models import (
    composite,
    llava_onevision,
    pixtral,
    qwen2_5_omni,
    qwen2_5_vl,
    qwen2_vl,
    text,
)
from headstart.engine.models.checkpoint.directory import Config, ModelDirectory, Rename
from headstart.engine.models.checkpoint.parts import Digest, PartTensors
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.engine.models.decoder.choice import Build, in_torch
from headstart.engine.models.perception.block_whisper import BlockWhisper
from headstart.engine.models.perception.interface import StreamModel

Progress = Callable[[int, int], None]  # bytes loaded, bytes in all


@dataclass(frozen=True, slots=True)
class Loading:
    """Options of loading. `answer_opening`: tokens of the chat template before an answer."""

    dtype: torch.dtype = torch.bfloat16
    mel_policy: MaxPolicy = MaxPolicy.RUNNING
    answer_opening: Sequence[int] = ()
    progress: Progress = lambda done, total: None
    tensors: Callable[[ModelDirectory, Rename], Tensors] | None = None  # in place of the files'
    build: Build = in_torch  # what runs the decoder
    int8_encoders: bool = False
    encoders: Place | None = None  # where those are; None: on the CPU
    left_out: tuple[str, ...] = ()  # beginnings of the names that get no data
    digest: Digest | None = None  # of the weights for pictures; None: not wanted

    def take(self, directory: ModelDirectory, rename: Rename) -> Tensors:
        """A directory's tensors by our modules' names."""
        if self.tensors is not None:
            return self.part(self.tensors(directory, rename))
        return self.part(directory.checkpoint(rename, self.dtype, self.progress))

    def part(self, tensors: Tensors) -> Tensors:
        """`tensors` without those that are left out, those of encoders in their place."""
        if self.left_out or self.digest is not None:
            tensors = PartTensors(tensors, self.dtype, self.left_out, self.digest)
        return tensors if self.encoders is None else PlacedTensors(tensors, self.encoders)


def load(folder: Path, how: Loading) -> StreamModel:
    """The model in `folder`, by its config.json. Raises `UnsupportedModel`, or `BadWeights` naming
    the file, field or tensor."""
    directory = ModelDirectory(folder)
    return _loader(directory)(directory, how)


def vision_folder(folder: Path) -> Path:
    """The directory of the model that sees: of a composite, the one behind its audio encoder."""
    directory = ModelDirectory(folder)
    if directory.model_type != composite.FAMILY:
        return folder
    return vision_folder(folder / directory.config.text("model"))


def family_of(directory: ModelDirectory) -> str:
    """Raises `UnsupportedModel`, or `BadWeights` for a config.json without a `model_type`."""
    _loader(directory)
    return directory.model_type


def _loader(directory: ModelDirectory) -> Callable[[ModelDirectory, Loading], StreamModel]:
    family = directory.model_type
    if family not in FAMILIES:
        path = directory.folder / "config.json"
        raise UnsupportedModel(path, "model_type", sorted(FAMILIES), family)
    return FAMILIES[family]


def _omni(directory: ModelDirectory, how: Loading) -> StreamModel:
    return qwen2_5_omni.Qwen25Omni(
        how.take(directory, qwen2_5_omni.our_name),
        qwen2_5_omni.thinker(directory.config),
        answer_opening=how.answer_opening,
        mel_policy=how.mel_policy,
        preprocessor=_preprocessor(directory),
        build=how.build,
    )


def _vl(kind: type[qwen2_vl.Qwen2Vl], directory: ModelDirectory, how: Loading) -> StreamModel:
    return kind(
        how.take(directory, qwen2_vl.our_name),
        directory.config,
        answer_opening=how.answer_opening,
        preprocessor=_preprocessor(directory),
        build=how.build,
    )


def _llava(directory: ModelDirectory, how: Loading) -> StreamModel:
    tensors = how.take(directory, llava_onevision.our_name)
    preprocessor = _preprocessor(directory)
    return llava_onevision.LlavaOnevision(
        tensors, directory.config, preprocessor=preprocessor, build=how.build
    )


def _pixtral(directory: ModelDirectory, how: Loading) -> StreamModel:
    pixtral.vision_sizes(directory.config.part("vision_config"))  # before any tensor is looked for
    return pixtral.Pixtral(
        how.take(directory, pixtral.our_name),
        directory.config,
        rows=pixtral.row_tokens(directory.folder),
        preprocessor=_preprocessor(directory),
        build=how.build,
    )


def _text(directory: ModelDirectory, how: Loading) -> StreamModel:
    return text.TextModel(how.take(directory, text.our_name), directory.config, how.build)


def _composite(directory: ModelDirectory, how: Loading) -> StreamModel:
    config, folder = directory.config, directory.folder
    base = load(folder / config.text("model"), how)
    stack = config.integer("stack_factor", 8)
    heard = ModelDirectory(folder / config.text("audio_model"))
    block = config.integer("audio_latency_block_size", 100)
    sizes = composite.whisper_sizes(heard.config, block, stack)
    encoder = how.take(heard, composite.whisper_name)
    ears = BlockWhisper(encoder, sizes, how.mel_policy)
    projector = how.take(directory, composite.projector_name)
    inner = config.integer("projector_hidden_size", 4096)
    hidden = base.spec.decoder.hidden
    return composite.Composite(
        ears, composite.Projector(projector, stack * sizes.width, inner, hidden), base
    )


def _preprocessor(directory: ModelDirectory) -> Config | None:
    return directory.optional("preprocessor_config.json")


FAMILIES: dict[str, Callable[[ModelDirectory, Loading], StreamModel]] = {
    qwen2_5_omni.FAMILY: _omni,
    f"{qwen2_5_omni.FAMILY}_thinker": _omni,
    qwen2_vl.FAMILY: partial(_vl, qwen2_vl.Qwen2Vl),
    qwen2_5_vl.FAMILY: partial(_vl, qwen2_5_vl.Qwen25Vl),
    llava_onevision.FAMILY: _llava,
    pixtral.MODEL_TYPE: _pixtral,
    composite.FAMILY: _composite,
    **dict.fromkeys(text.FAMILIES, _text),
}
