"""A Whisper's checkpoint under our names, whatever the format of its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from headstart.engine.asr.whisper.settings import Extras, WhisperSettings

EMBEDDING = "decoder.embedding"
"""Our name for the decoder's embedding."""
HEAD = "vocabulary head"


@dataclass(frozen=True)
class WhisperSource:
    """A checkpoint of either format, under our names: what `checkpoint` builds a model from.

    `tensor`: one by our name. `head` reads the vocabulary head; None where the embedding is it too.
    """

    path: Path
    settings: WhisperSettings
    extras: Extras
    tensor: Callable[[str], Tensor]
    head: Callable[[], Tensor] | None
