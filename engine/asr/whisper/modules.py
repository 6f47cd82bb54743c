"""The modules that Whisper's weights are in, by the names that `checkpoint` fills them by.

What is computed with them is in `torch_layers`, or one native call (`packed_layers`).
"""

from __future__ import annotations

from torch import nn

from headstart.engine.asr.whisper.settings import WhisperSettings


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself; queries, keys, values in one matrix."""

    def __init__(self, settings: WhisperSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.qkv = nn.Linear(settings.width, 3 * settings.width)
        self.out = nn.Linear(settings.width, settings.width)


class Mlp(nn.Module):
    """Width to `ffn` and back, GELU between."""

    def __init__(self, settings: WhisperSettings) -> None:
        super().__init__()
        self.up = nn.Linear(settings.width, settings.ffn)
        self.down = nn.Linear(settings.ffn, settings.width)


class EncoderLayer(nn.Module):
    """Pre-norm attention and MLP, each added to its input."""

    def __init__(self, settings: WhisperSettings) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(settings.width)
        self.attention = SelfAttention(settings)
        self.mlp_norm = nn.LayerNorm(settings.width)
        self.mlp = Mlp(settings)


class CrossAttention(nn.Module):
    """Text attends to the sound."""

    def __init__(self, settings: WhisperSettings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.q = nn.Linear(settings.width, settings.width)
        self.kv = nn.Linear(settings.width, 2 * settings.width)
        self.out = nn.Linear(settings.width, settings.width)


class DecoderLayer(nn.Module):
    """Pre-norm self-attention, cross-attention and MLP."""

    def __init__(self, settings: WhisperSettings) -> None:
        super().__init__()
        self.self_norm = nn.LayerNorm(settings.width)
        self.self_attention = SelfAttention(settings)
        self.cross_norm = nn.LayerNorm(settings.width)
        self.cross_attention = CrossAttention(settings)
        self.mlp_norm = nn.LayerNorm(settings.width)
        self.mlp = Mlp(settings)
