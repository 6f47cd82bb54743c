"""Whisper's text decoder: tokens in, hidden rows out, with two caches.

`CrossCache` holds the keys and values of one encoded sound, made once per encoding. `TextCache`
holds those of the tokens run so far and can be cut back to any length, so a guess of several tokens
is checked in one pass and only its right beginning kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.ears.settings import WhisperSettings
from engine.ears.vocabulary import Vocabulary
from engine.ears.whisper import Mlp, SelfAttention, join_heads, split_heads


@dataclass(frozen=True)
class CrossCache:
    """Per layer, keys and values of the sound: each [heads, T_audio, d]."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    @property
    def positions(self) -> int:
        return self.keys[0].shape[1]


class TextCache:
    """Keys and values of the tokens run so far, [layers, heads, capacity, d], `length` in use."""

    def __init__(self, settings: WhisperSettings) -> None:
        shape = (
            settings.decoder_layers,
            settings.heads,
            settings.text_positions,
            settings.head_width,
        )
        self.keys = torch.empty(shape)
        self.values = torch.empty(shape)
        self.length = 0

    @property
    def capacity(self) -> int:
        return self.keys.shape[2]

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write [heads, n, d] behind `length`; return all keys and values of that layer."""
        end = self.length + keys.shape[1]
        self.keys[layer, :, self.length : end] = keys
        self.values[layer, :, self.length : end] = values
        return self.keys[layer, :, :end], self.values[layer, :, :end]

    def cut(self, length: int) -> None:
        """Forget all tokens from `length` on."""
        assert 0 <= length <= self.length, (length, self.length)
        self.length = length


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

    def cross_queries(self, x: Tensor) -> Tensor:
        """[n, D] to [heads, n, d]."""
        cross = self.cross_attention
        return split_heads(cross.q(self.cross_norm(x)), cross.heads)

    def add_self_attention(self, x: Tensor, cache: TextCache, layer: int) -> Tensor:
        """[n, D] plus what the tokens before (and each itself) say; writes the cache."""
        q, k, v = self.self_attention.project(self.self_norm(x))
        keys, values = cache.append(layer, k, v)
        mask = None
        if len(x) > 1:  # row i sees everything before it and itself
            mask = torch.ones(len(x), keys.shape[1], dtype=torch.bool).tril(cache.length)
        mixed = F.scaled_dot_product_attention(q[None], keys[None], values[None], attn_mask=mask)
        return x + self.self_attention.out(join_heads(mixed[0]))  # type: ignore[no-any-return]

    def add_cross_attention(self, x: Tensor, queries: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(queries[None], k[None], v[None])
        return x + self.cross_attention.out(join_heads(mixed[0]))  # type: ignore[no-any-return]


class WhisperDecoder(nn.Module):
    """Learned positions and layers, between the vocabulary's two uses."""

    def __init__(self, settings: WhisperSettings, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.settings = settings
        self.vocabulary = vocabulary
        self.positions = nn.Parameter(torch.empty(settings.text_positions, settings.width))
        stack = [DecoderLayer(settings) for _ in range(settings.decoder_layers)]
        # The list is for torch; the typed tuple of the same modules for us.
        self.layers = nn.ModuleList(stack)
        self._stack = tuple(stack)
        self.norm = nn.LayerNorm(settings.width)

    def listen(self, audio: Tensor) -> CrossCache:
        """Keys and values of an encoded sound [T_audio, D], for every layer."""
        heads = self.settings.heads
        pairs = [layer.cross_attention.kv(audio).chunk(2, dim=-1) for layer in self._stack]
        return CrossCache(
            keys=tuple(split_heads(k, heads) for k, _ in pairs),
            values=tuple(split_heads(v, heads) for _, v in pairs),
        )

    def forward(
        self,
        tokens: Tensor,
        cache: TextCache,
        sound: CrossCache,
        watched: tuple[tuple[int, int], ...] = (),
    ) -> tuple[Tensor, Tensor]:
        """Run `tokens` [n] behind those in `cache`.

        Returns hidden rows [n, D] and the cross-attention [len(watched), n, T_audio] of the heads
        (layer, head) in `watched`. Raises ValueError when the text positions run out.
        """
        end = cache.length + len(tokens)
        if end > cache.capacity:
            raise ValueError(f"expected at most {cache.capacity} text tokens, got {end}")
        x = self.vocabulary.embed(tokens) + self.positions[cache.length : end]
        seen: dict[tuple[int, int], Tensor] = {}
        for i, layer in enumerate(self._stack):
            x = layer.add_self_attention(x, cache, i)
            queries = layer.cross_queries(x)
            keys = sound.keys[i]
            for head in (head for at, head in watched if at == i):
                scores = queries[head] @ keys[head].T / self.settings.head_width**0.5
                seen[i, head] = scores.softmax(dim=-1)
            x = layer.add_cross_attention(x, queries, keys, sound.values[i])
            x = x + layer.mlp(layer.mlp_norm(x))
        cache.length = end
        shape = (0, len(tokens), sound.positions)
        attention = torch.stack([seen[pair] for pair in watched]) if watched else x.new_empty(shape)
        return self.norm(x), attention
