"""The sizes and special tokens of one Whisper model."""

from __future__ import annotations

from dataclasses import dataclass

# The vocabulary of the English-only models is one language token shorter; all models with more
# tokens than this know several languages.
ENGLISH_ONLY_VOCABULARY = 51_864


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
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def multilingual(self) -> bool:
        return self.vocabulary > ENGLISH_ONLY_VOCABULARY


@dataclass(frozen=True)
class Extras:
    """What a checkpoint says besides tensors.

    `alignment_heads`: (layer, head) whose cross-attention follows the speech; may be empty.
    `suppress`: tokens never to be chosen; `suppress_first`: not as the first one.
    """

    alignment_heads: tuple[tuple[int, int], ...] = ()
    suppress: tuple[int, ...] = ()
    suppress_first: tuple[int, ...] = ()
