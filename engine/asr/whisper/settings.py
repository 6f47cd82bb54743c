"""The sizes and special tokens of one Whisper model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# The vocabulary of the English-only models is one language token shorter; all models with more
# tokens than this know several languages.
ENGLISH_ONLY_VOCABULARY = 51_864

TINY_LAYERS = 4  # of its encoder; `base` has six

# Thirty seconds, and the longest text that the ears' window can hold (prompt, words, draft).
LEAST_AUDIO_POSITIONS = 1500
LEAST_TEXT_POSITIONS = 400


@dataclass(frozen=True)
class WhisperSettings:
    """Sizes as the authors name them; `audio_positions` are 20 ms each."""

    mels: int
    width: int
    heads: int
    ffn: int
    encoder_layers: int
    decoder_layers: int
    vocabulary: int
    audio_positions: int = 1500
    text_positions: int = 448

    @property
    def is_deep(self) -> bool:
        """Whether its encoder has more layers than that of `tiny`."""
        return self.encoder_layers > TINY_LAYERS

    @property
    def head_width(self) -> int:
        return self.width // self.heads


@dataclass(frozen=True)
class Extras:
    """What a checkpoint says besides tensors.

    `alignment_heads`: (layer, head) whose cross-attention follows the speech; may be empty.
    `suppress`: tokens never to be chosen; `suppress_first`: not as the first one. `multilingual`:
    whether the decoder is told a language. `ids`: of special tokens, as the checkpoint counts them.
    """

    alignment_heads: tuple[tuple[int, int], ...] = ()
    suppress: tuple[int, ...] = ()
    suppress_first: tuple[int, ...] = ()
    multilingual: bool = False
    ids: Mapping[str, int] = field(default_factory=dict)
