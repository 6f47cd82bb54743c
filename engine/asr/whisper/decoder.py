"""Whisper's text decoder: tokens in, hidden rows out, with two caches of keys and values: of the
sound, made once per encoding, and of the tokens run so far (`caches`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headstart.engine.asr.whisper import torch_layers
from headstart.engine.asr.whisper.caches import CrossCache, Pair, Text, TextCache, grown
from headstart.engine.asr.whisper.encoder import split_heads
from headstart.engine.asr.whisper.modules import DecoderLayer
from headstart.engine.asr.whisper.settings import WhisperSettings
from headstart.engine.asr.whisper.vocabulary import Vocabulary
from headstart.kernels import whisper_layers as kernel
from headstart.kernels.layer_norm import layer_norm
from headstart.kernels.whisper_layers import WhisperLayers


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
        ends = [at + n for at, n in zip(starts, counts, strict=True)]
        rooms = [self._room(old, end) for old, end in zip(known, ends, strict=True)]
        for i, layer in enumerate(self.stack):
            parts = torch.split(torch_layers.product(layer.cross_attention.kv, rows), counts)
            for part, (keys, values), at, end in zip(parts, rooms, starts, ends, strict=True):
                k, v = (split_heads(half, heads) for half in part.chunk(2, dim=-1))
                keys[i, :, at:end] = k
                values[i, :, at:end] = v
        return [
            CrossCache(room[0][:, :, :end], room[1][:, :, :end], room=room)
            for room, end in zip(rooms, ends, strict=True)
        ]

    def _room(self, known: CrossCache | None, positions: int) -> Pair:
        """Memory for so many positions of a sound, the first of which are `known`."""
        if known is not None:
            return grown((known.keys, known.values), known.room, positions)
        settings = self.settings
        return self._memory(
            (settings.decoder_layers, settings.heads, positions, settings.head_width)
        )

    def _memory(self, shape: tuple[int, ...]) -> Pair:
        """New memory, for keys and for values of that shape."""
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
