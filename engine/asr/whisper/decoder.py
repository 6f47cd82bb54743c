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

from headstart.engine.asr.whisper import torch_layers
from headstart.engine.asr.whisper.encoder import Mlp, SelfAttention, split_heads
from headstart.engine.asr.whisper.settings import WhisperSettings
from headstart.engine.asr.whisper.vocabulary import Vocabulary
from headstart.kernels import whisper_layers as kernel
from headstart.kernels.layer_norm import layer_norm
from headstart.kernels.whisper_layers import WhisperLayers


@dataclass(frozen=True)
class CrossCache:
    """Keys and values of the sound: each [layers, heads, T_audio, d]."""

    keys: Tensor
    values: Tensor

    @property
    def positions(self) -> int:
        return self.keys.shape[2]

    def first(self, positions: int) -> CrossCache:
        """A copy of the first `positions`, which lets go of the others' memory."""
        return CrossCache(
            self.keys[:, :, :positions].clone(), self.values[:, :, :positions].clone()
        )


class TextCache:
    """Keys and values of the tokens run so far, [layers, heads, capacity, d], `length` in use."""

    def __init__(
        self,
        settings: WhisperSettings,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`device`: the host if none."""
        shape = (
            settings.decoder_layers,
            settings.heads,
            settings.text_positions,
            settings.head_width,
        )
        self.keys = torch.empty(shape, device=device, dtype=dtype)
        self.values = torch.empty(shape, device=device, dtype=dtype)
        self.length = 0

    @property
    def capacity(self) -> int:
        return self.keys.shape[2]

    def put(self, keys: Tensor, values: Tensor) -> None:
        """Write [layers, heads, n, d] behind `length`, which stays."""
        end = self.length + keys.shape[2]
        self.keys[:, :, self.length : end] = keys
        self.values[:, :, self.length : end] = values

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

    `seen`: of each watched (layer, head), the attention [n, T_audio] to the sound; `total`: their
    sum, if it is known.
    """

    tokens: Tensor
    cache: TextCache
    sound: CrossCache
    watched: tuple[tuple[int, int], ...] = ()
    seen: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    total: Tensor | None = None

    @property
    def attention(self) -> Tensor:
        """[len(watched), n, T_audio]."""
        if not self.watched:
            return torch.empty(0, len(self.tokens), self.sound.positions)
        return torch.stack([self.seen[pair] for pair in self.watched])

    def looked(self, positions: int) -> Tensor:
        """The attention of all watched heads together to the first `positions` of the sound,
        [n, positions]."""
        if self.total is not None:
            return self.total[:, :positions]
        heard = self.attention[:, :, :positions]
        total = heard[0]
        for head in heard[1:]:  # one by one: torch's mean has another order on other processors
            total = total + head
        return total


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

    def text_cache(self) -> TextCache:
        """For a text that has not begun."""
        return TextCache(self.settings)

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
        caches = [self._room(at + n) for at, n in zip(starts, counts, strict=True)]
        for cache, old, at in zip(caches, known, starts, strict=True):
            if old is not None:
                cache.keys[:, :, :at] = old.keys
                cache.values[:, :, :at] = old.values
        for i, layer in enumerate(self.stack):
            parts = torch.split(torch_layers.product(layer.cross_attention.kv, rows), counts)
            for part, cache, at in zip(parts, caches, starts, strict=True):
                k, v = (split_heads(half, heads) for half in part.chunk(2, dim=-1))
                cache.keys[i, :, at:] = k
                cache.values[i, :, at:] = v
        return caches

    def _room(self, positions: int) -> CrossCache:
        settings = self.settings
        shape = (settings.decoder_layers, settings.heads, positions, settings.head_width)
        return CrossCache(torch.empty(shape), torch.empty(shape))

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
        placed = torch_layers.onto(torch.stack((tokens, places)), self.positions.device)
        x = self.vocabulary.embed(placed[0]) + self.positions[placed[1]]
        x = self._run(x, texts) if self.packed is None else self._run_packed(x, texts)
        for text in texts:
            text.cache.length += len(text.tokens)
        return list(torch.split(self._normed(x), counts))

    def _normed(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.norm.weight.detach(), self.norm.bias.detach())

    def _run(self, x: Tensor, texts: Sequence[Text]) -> Tensor:
        rows = torch.split(x, [len(text.tokens) for text in texts])
        heard = self._heard([text.sound for text in texts])
        return torch.cat(torch_layers.read(self.stack, rows, texts, heard))

    def _heard(self, sounds: Sequence[CrossCache]) -> torch_layers.HeardTogether:
        return torch_layers.HeardTogether.of(sounds)

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
            )
            for text in texts
        ]
        x, seen = self.packed(x, batch, watched)
        for text, attention in zip(texts, seen, strict=True):
            if text.watched:
                text.seen = dict(zip(watched, attention, strict=True))
        return x
