"""Whisper's audio encoder, of any length up to 30 s.

The authors pad every sound to 30 s. We encode only what there is, which costs a tenth for a short
utterance; positions are absolute, so the same weights serve. Checked against `transformers`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.ears.settings import WhisperSettings

POSITIONS_PER_SECOND = 50


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself; queries, keys, values in one matrix."""

    def __init__(self, settings: WhisperSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.qkv = nn.Linear(settings.width, 3 * settings.width)
        self.out = nn.Linear(settings.width, settings.width)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[T, D] to queries, keys and values, each [heads, T, d]."""
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        return q, k, v


class Mlp(nn.Module):
    """Width to `ffn` and back, GELU between."""

    def __init__(self, settings: WhisperSettings) -> None:
        super().__init__()
        self.up = nn.Linear(settings.width, settings.ffn)
        self.down = nn.Linear(settings.ffn, settings.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """Pre-norm attention and MLP, each added to its input."""

    def __init__(self, settings: WhisperSettings) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(settings.width)
        self.attention = SelfAttention(settings)
        self.mlp_norm = nn.LayerNorm(settings.width)
        self.mlp = Mlp(settings)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.attention.project(self.attention_norm(x))
        mixed = F.scaled_dot_product_attention(q[None], k[None], v[None])[0]
        x = x + self.attention.out(join_heads(mixed))
        return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]


class WhisperEncoder(nn.Module):
    """Two convolutions (the second halves the rate to 50 Hz) and a stack of layers."""

    def __init__(self, settings: WhisperSettings) -> None:
        super().__init__()
        self.settings = settings
        self.conv1 = nn.Conv1d(settings.mels, settings.width, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(settings.width, settings.width, kernel_size=3, stride=2, padding=1)
        self.positions = nn.Parameter(torch.empty(settings.audio_positions, settings.width))
        self.layers = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.encoder_layers))
        self.norm = nn.LayerNorm(settings.width)

    def forward(self, features: Tensor) -> Tensor:
        """[mels, T] log-mel to [ceil(T / 2), D]. Raises ValueError beyond 30 s."""
        x = F.gelu(self.conv1(features[None]))
        x = F.gelu(self.conv2(x))[0].T  # [T / 2, D]
        if len(x) > self.settings.audio_positions:
            raise ValueError(
                f"expected at most {self.settings.audio_positions} audio positions, got {len(x)}"
            )
        x = x + self.positions[: len(x)]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)  # type: ignore[no-any-return]


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[T, D] to [heads, T, d]."""
    return x.view(len(x), heads, -1).transpose(0, 1)


def join_heads(x: Tensor) -> Tensor:
    """[heads, T, d] to [T, D]."""
    return x.transpose(0, 1).reshape(x.shape[1], -1)
