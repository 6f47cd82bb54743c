"""A Whisper directory from disk: CTranslate2 (`model.bin`) or Hugging Face (`model.safetensors`).

`ct2_whisper` and `hf_whisper` rename either to the names of our own modules, where query, key and
value matrices are one. Here the modules are filled, and checked on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from headstart.engine.asr.whisper.ct2_whisper import ct2_source
from headstart.engine.asr.whisper.decoder import WhisperDecoder
from headstart.engine.asr.whisper.encoder import WhisperEncoder
from headstart.engine.asr.whisper.hf_whisper import hugging_face_source, is_hugging_face
from headstart.engine.asr.whisper.packed import GROUP, pack_linears
from headstart.engine.asr.whisper.packed_layers import (
    decoder_layers,
    encoder_layers,
    have_native_sizes,
)
from headstart.engine.asr.whisper.prepared import MadeAnew, Prepared
from headstart.engine.asr.whisper.settings import (
    LEAST_AUDIO_POSITIONS,
    LEAST_TEXT_POSITIONS,
    Extras,
    WhisperSettings,
)
from headstart.engine.asr.whisper.source import EMBEDDING, HEAD, WhisperSource
from headstart.engine.asr.whisper.vocabulary import ExactVocabulary, PackedVocabulary, Vocabulary
from headstart.engine.checkpoints.named import read_json
from headstart.engine.errors import BadWeights, KernelFailed
from headstart.kernels.errors import KernelMemoryError
from headstart.kernels.qlinear import QWeight

TOKENIZER_FILE = "tokenizer.json"
_CT2_FILE = "model.bin"


@contextmanager
def kernels_at_work() -> Iterator[None]:
    """Work on the C kernels. Raises `KernelFailed` where they get no memory."""
    try:
        yield
    except KernelMemoryError as error:
        raise KernelFailed(str(error)) from error


@dataclass(frozen=True)
class Checkpoint:
    """A loaded model. Unless exact, its matrices and vocabulary are int8 (`packed`), and then, with
    our kernels, what is computed for one sound depends neither on what else is in its batch nor on
    the processor (kernels/whisper_layers/README.md). Within `working()` its parts may be used:
    where they are on a GPU it selects that, and a stream. It raises `DeviceFull` or
    `KernelFailed` where there is no memory for a pass."""

    settings: WhisperSettings
    extras: Extras
    encoder: WhisperEncoder
    decoder: WhisperDecoder
    prepared: Prepared = field(default_factory=MadeAnew)
    working: Callable[[], AbstractContextManager[object]] = kernels_at_work


def load_checkpoint(
    directory: Path, exact: bool = False, prepared: Prepared | None = None
) -> Checkpoint:
    """Load a Whisper directory; `exact`: all in fp32. `prepared`: where packed matrices come from.
    Raises `BadWeights`."""
    made = prepared or MadeAnew()
    for required in ("config.json", TOKENIZER_FILE):
        if not (directory / required).is_file():
            raise BadWeights(directory, "Whisper directory", required, "no such file")
    config = read_json(directory / "config.json")
    if (directory / _CT2_FILE).is_file():
        return build(ct2_source(directory / _CT2_FILE, config), exact, made)
    if is_hugging_face(directory):
        return build(hugging_face_source(directory, config), exact, made)
    others = sorted(path.name for path in directory.glob("*.bin"))  # older formats of the same
    raise BadWeights(
        directory,
        "Whisper directory",
        "model.bin (CTranslate2) or model.safetensors (Hugging Face)",
        ", ".join(others) or "neither",
    )


def build(source: WhisperSource, exact: bool, prepared: Prepared) -> Checkpoint:
    """A model of a checkpoint's tensors; `exact`, `prepared`: as of `load_checkpoint`. Raises
    `BadWeights`."""
    path, settings = source.path, source.settings
    _check_sizes(path, settings)

    def checked(name: str, tensor: Tensor, shape: Iterable[int]) -> Tensor:
        wanted = list(shape)
        if list(tensor.shape) != wanted:
            raise BadWeights(path, name, str(wanted), str(list(tensor.shape)))
        if not tensor.is_floating_point():
            raise BadWeights(path, name, "floating point", str(tensor.dtype))
        return tensor

    def packed(name: str, shape: tuple[int, int], tensor: Callable[[], Tensor]) -> QWeight:
        return prepared.matrix(name, *shape, lambda: checked(name, tensor(), shape))

    def packed_linear(name: str, linear: nn.Linear) -> QWeight:
        whole = f"{name}.weight"
        shape = (linear.out_features, linear.in_features)
        return packed(whole, shape, lambda: source.tensor(whole))

    words, head = (settings.vocabulary, settings.width), source.head
    vocabulary: Vocabulary
    if exact:
        embedding = checked(EMBEDDING, source.tensor(EMBEDDING), words)
        head_there = None if head is None else checked(HEAD, head(), words)
        vocabulary = ExactVocabulary(embedding, head_there)
    else:
        vocabulary = PackedVocabulary(
            packed(EMBEDDING, words, lambda: source.tensor(EMBEDDING)),
            None if head is None else packed(HEAD, words, head),
        )
    with torch.device("meta"):
        encoder = WhisperEncoder(settings)
        decoder = WhisperDecoder(settings, vocabulary)
    for part, module in (("encoder", encoder), ("decoder", decoder)):
        if not exact:
            pack_linears(module, packed_linear, part)
        state = {
            name: checked(f"{part}.{name}", source.tensor(f"{part}.{name}"), like.shape).float()
            for name, like in module.state_dict().items()
        }
        module.load_state_dict(state, assign=True)
        module.eval().requires_grad_(False)
    if not exact and have_native_sizes(settings):
        encoder.packed = encoder_layers(encoder.stack, settings.heads)
        decoder.packed = decoder_layers(decoder.stack, settings.heads)
    return Checkpoint(
        settings, _checked_extras(path, settings, source.extras), encoder, decoder, prepared
    )


def _check_sizes(path: Path, settings: WhisperSettings) -> None:
    least = (
        ("heads", settings.heads, 1),
        ("encoder layers", settings.encoder_layers, 1),
        ("decoder layers", settings.decoder_layers, 1),
        ("audio positions", settings.audio_positions, LEAST_AUDIO_POSITIONS),
        ("text positions", settings.text_positions, LEAST_TEXT_POSITIONS),
    )
    for what, count, wanted_count in least:
        if count < wanted_count:
            raise BadWeights(path, what, f"at least {wanted_count}", str(count))
    if settings.width % settings.heads or settings.width % GROUP or settings.ffn % GROUP:
        wanted = f"multiples of {settings.heads} heads and of {GROUP}"
        raise BadWeights(path, "width and ffn", wanted, f"{settings.width}, {settings.ffn}")


def _checked_extras(path: Path, settings: WhisperSettings, extras: Extras) -> Extras:
    """`extras`, which fit the sizes, with alignment heads in any case."""
    for layer, head in extras.alignment_heads:
        if not (0 <= layer < settings.decoder_layers and 0 <= head < settings.heads):
            bounds = f"below ({settings.decoder_layers}, {settings.heads})"
            raise BadWeights(path, "alignment head", bounds, f"({layer}, {head})")
    # Configs of small models carry over ids of the large ones; what is not there needs no ban.
    extras = replace(
        extras,
        suppress=tuple(token for token in extras.suppress if 0 <= token < settings.vocabulary),
        suppress_first=tuple(t for t in extras.suppress_first if 0 <= t < settings.vocabulary),
    )
    if extras.alignment_heads:
        return extras
    # As the authors do where nobody has picked heads: all of the upper half.
    upper = range(settings.decoder_layers // 2, settings.decoder_layers)
    every = tuple((layer, head) for layer in upper for head in range(settings.heads))
    return replace(extras, alignment_heads=every)
