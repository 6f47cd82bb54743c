"""Whisper's text decoder: tokens in, hidden rows out, with two caches.

`CrossCache` holds the keys and values of one encoded sound, made once per encoding. `TextCache`
holds those of the tokens run so far and can be cut back to any length, so a guess of several tokens
is checked in one pass and only its right beginning kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headstart.engine.asr.whisper.encoder import (
    Mlp,
    Pair,
    SelfAttention,
    grown,
    join_heads,
    split_heads,
)
from headstart.engine.asr.whisper.settings import WhisperSettings
from headstart.engine.asr.whisper.vocabulary import Vocabulary
from headstart.kernels import whisper_layers as kernel
from headstart.kernels.layer_norm import layer_norm
from headstart.kernels.whisper_layers import WhisperLayers


@dataclass(frozen=True)
class CrossCache:
    """Keys and values of the sound: each [layers, heads, T_audio, d]. `beyond`: of what follows on
    it. `room`: the memory that keys and values are the beginning of; what is heard next is written
    there, in place."""

    keys: Tensor
    values: Tensor
    beyond: CrossCache | None = None
    room: Pair | None = None

    @property
    def positions(self) -> int:
        """With those beyond."""
        return self.keys.shape[2] + (0 if self.beyond is None else self.beyond.positions)

    def first(self, positions: int) -> CrossCache:
        """The first `positions`, in the same memory: the others give way to what comes next."""
        keys, values = self.keys[:, :, :positions], self.values[:, :, :positions]
        return CrossCache(keys, values, room=self.room)

    def layer(self, index: int) -> Pair:
        """Keys and values [heads, positions, d] of one layer, with those beyond."""
        own = self.keys[index], self.values[index]
        if self.beyond is None:
            return own
        keys, values = (
            torch.cat(parts, dim=1) for parts in zip(own, self.beyond.layer(index), strict=True)
        )
        return keys, values


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

    def copy(self) -> TextCache:
        """Another one with the same content."""
        made = TextCache.__new__(TextCache)
        made.keys, made.values, made.length = self.keys.clone(), self.values.clone(), self.length
        return made

    def cut(self, length: int) -> None:
        """Forget all tokens from `length` on."""
        assert 0 <= length <= self.length, (length, self.length)
        self.length = length


@dataclass
class Text:
    """Tokens [n] of one text in a batch, to be run behind those in its cache.

    `seen`: of each watched (layer, head), the attention [n, T_audio] to the sound.
    """

    tokens: Tensor
    cache: TextCache
    sound: CrossCache
    watched: tuple[tuple[int, int], ...] = ()
    seen: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    @property
    def attention(self) -> Tensor:
        """[len(watched), n, T_audio]."""
        if not self.watched:
            return torch.empty(0, len(self.tokens), self.sound.positions)
        return torch.stack([self.seen[pair] for pair in self.watched])


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

    def forward(self, x: Tensor, texts: Sequence[Text], layer: int) -> Tensor:
        """Rows of several texts [sum of n, D]; writes their caches and what is watched."""
        counts = [len(text.tokens) for text in texts]
        parts = self.self_attention.qkv(self.self_norm(x)).split(counts)
        mixed = [self._among_words(t, p, layer) for t, p in zip(texts, parts, strict=True)]
        x = x + self.self_attention.out(torch.cat(mixed))
        parts = self.cross_attention.q(self.cross_norm(x)).split(counts)
        mixed = [self._to_the_sound(t, p, layer) for t, p in zip(texts, parts, strict=True)]
        x = x + self.cross_attention.out(torch.cat(mixed))
        return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]

    def _among_words(self, text: Text, qkv: Tensor, layer: int) -> Tensor:
        heads = self.self_attention.heads
        q, k, v = (split_heads(part, heads) for part in qkv.chunk(3, dim=-1))
        keys, values = text.cache.append(layer, k, v)
        mask = None
        if len(qkv) > 1:  # row i sees everything before it and itself
            mask = torch.ones(len(qkv), keys.shape[1], dtype=torch.bool).tril(text.cache.length)
        mixed = F.scaled_dot_product_attention(q[None], keys[None], values[None], attn_mask=mask)
        return join_heads(mixed[0])

    def _to_the_sound(self, text: Text, q: Tensor, layer: int) -> Tensor:
        queries = split_heads(q, self.cross_attention.heads)
        keys, values = text.sound.layer(layer)
        for at, head in text.watched:
            if at == layer:
                scores = queries[head] @ keys[head].T / queries.shape[-1] ** 0.5
                text.seen[at, head] = scores.softmax(dim=-1)
        mixed = F.scaled_dot_product_attention(queries[None], keys[None], values[None])
        return join_heads(mixed[0])


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
        self.stack = tuple(stack)
        self.norm = nn.LayerNorm(settings.width)
        self.packed: WhisperLayers | None = None  # the layers as one native call

    def listen(self, audio: Tensor, known: CrossCache | None = None) -> CrossCache:
        """Keys and values of an encoded sound [T_audio, D], behind those `known`."""
        return self.listen_many([audio], [known])[0]

    def listen_many(
        self, audios: Sequence[Tensor], known: Sequence[CrossCache | None]
    ) -> list[CrossCache]:
        """`listen` for several sounds, whose rows go through the matrices together."""
        heads, counts = self.settings.heads, [len(audio) for audio in audios]
        rows = torch.cat(list(audios))
        starts = [0 if old is None else old.positions for old in known]
        ends = [at + n for at, n in zip(starts, counts, strict=True)]
        rooms = [self._room(old, end) for old, end in zip(known, ends, strict=True)]
        for i, layer in enumerate(self.stack):
            parts = torch.split(layer.cross_attention.kv(rows), counts)
            for part, (keys, values), at, end in zip(parts, rooms, starts, ends, strict=True):
                k, v = (split_heads(half, heads) for half in part.chunk(2, dim=-1))
                keys[i, :, at:end] = k
                values[i, :, at:end] = v
        return [
            CrossCache(room[0][:, :, :end], room[1][:, :, :end], room=room)
            for room, end in zip(rooms, ends, strict=True)
        ]

    def _room(self, known: CrossCache | None, positions: int) -> Pair:
        if known is not None:
            return grown((known.keys, known.values), known.room, positions)
        settings = self.settings
        shape = (settings.decoder_layers, settings.heads, positions, settings.head_width)
        return torch.empty(shape), torch.empty(shape)

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
        text = Text(tokens, cache, sound, watched)
        return self.read([text])[0], text.attention

    def read(self, texts: Sequence[Text]) -> list[Tensor]:
        """Run several texts' tokens through the layers together: hidden rows [n, D] of each.

        Raises ValueError, before anything was written, when a text's positions run out.
        """
        for text in texts:
            end = text.cache.length + len(text.tokens)
            if end > text.cache.capacity:
                raise ValueError(f"expected at most {text.cache.capacity} text tokens, got {end}")
        starts = [text.cache.length for text in texts]
        counts = [len(text.tokens) for text in texts]
        places = torch.cat([torch.arange(at, at + n) for at, n in zip(starts, counts, strict=True)])
        tokens = torch.cat([text.tokens for text in texts])
        x = self.vocabulary.embed(tokens) + self.positions[places]
        x = self._run(x, texts) if self.packed is None else self._run_packed(x, texts)
        for text in texts:
            text.cache.length += len(text.tokens)
        normed = layer_norm(x, self.norm.weight.detach(), self.norm.bias.detach())
        return list(torch.split(normed, counts))

    def _run(self, x: Tensor, texts: Sequence[Text]) -> Tensor:
        for i, layer in enumerate(self.stack):
            x = layer(x, texts, i)
        return x

    def _run_packed(self, x: Tensor, texts: Sequence[Text]) -> Tensor:
        assert self.packed is not None
        watched: tuple[tuple[int, int], ...] = max((text.watched for text in texts), key=len)
        assert all(text.watched in ((), watched) for text in texts), "one choice of heads a batch"
        batch = [
            kernel.Sequence(
                rows=len(text.tokens),
                k=text.cache.keys,
                v=text.cache.values,
                before=text.cache.length,
                keep=len(text.tokens),
                heard_k=text.sound.keys,
                heard_v=text.sound.values,
                beyond_k=None if text.sound.beyond is None else text.sound.beyond.keys,
                beyond_v=None if text.sound.beyond is None else text.sound.beyond.values,
            )
            for text in texts
        ]
        x, seen = self.packed(x, batch, watched)
        for text, attention in zip(texts, seen, strict=True):
            if text.watched:
                text.seen = dict(zip(watched, attention, strict=True))
        return x
