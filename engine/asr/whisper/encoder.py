"""Whisper's audio encoder, of any length up to 30 s.

The authors pad every sound to 30 s. We encode only what there is, which costs a tenth for a short
utterance; positions are absolute, so the same weights serve. Checked against `transformers`. With
our kernels and packed layers its bits are the same on every processor.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headstart.engine.asr.whisper.pieces import Pieces, drain
from headstart.engine.asr.whisper.settings import WhisperSettings
from headstart.kernels import conv1d
from headstart.kernels import whisper_layers as kernel
from headstart.kernels.layer_norm import layer_norm
from headstart.kernels.whisper_layers import WhisperLayers

POSITIONS_PER_SECOND = 50

MANY_POSITIONS = 256
"""From so many on, each layer is a piece of work of its own. A chunk brings fewer."""


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

    def forward(self, x: Tensor, sounds: Sequence[_Part]) -> Tensor:
        """Rows of several sounds [sum of T, D]; each attends to its own and to what is frozen."""
        parts = self.attention.qkv(self.attention_norm(x)).split([s.count for s in sounds])
        mixed = [self._attend(part, sound) for part, sound in zip(parts, sounds, strict=True)]
        x = x + self.attention.out(torch.cat(mixed))
        return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]

    def _attend(self, qkv: Tensor, sound: _Part) -> Tensor:
        q, k, v = (split_heads(part, self.attention.heads) for part in qkv.chunk(3, dim=-1))
        k, v = sound.whole(k, v)
        return join_heads(F.scaled_dot_product_attention(q[None], k[None], v[None])[0])


Pair = tuple[Tensor, Tensor]
"""Keys and values, each [layers, heads, positions, d]."""

ROOM_STEP = 128
"""Keys and values that grow have room for a multiple of so many positions."""


def grown(known: Pair, room: Pair | None, positions: int) -> Pair:
    """Memory for `positions` positions that begins with the `known` ones: that which they lie in
    already, `room`, if it is large enough."""
    if room is not None and room[0].shape[2] >= positions:
        return room
    layers, heads, count, width = known[0].shape
    capacity = -(-positions // ROOM_STEP) * ROOM_STEP
    made = tuple(torch.empty(layers, heads, capacity, width) for _ in known)
    for to, part in zip(made, known, strict=True):
        to[:, :, :count] = part
    return made[0], made[1]


@dataclass
class Frozen:
    """What is kept of the positions of one sound whose encoding will not change any more.

    `keys` and `values`: [encoder layers, heads, positions, d]. `positions` of them. `room`: the
    memory that they are the beginning of; the next positions are frozen there, in place.
    """

    positions: int = 0
    keys: Tensor = field(default_factory=lambda: torch.empty(0))
    values: Tensor = field(default_factory=lambda: torch.empty(0))
    room: Pair | None = None


@dataclass
class _Part:
    """One sound's rows in a batch, `count` new ones; layer by layer it takes down the keys and
    values of those that shall be frozen."""

    sound: EncodedSound
    count: int
    layer: int = 0
    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)

    def whole(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        frozen, beyond, keep = self.sound.frozen, self.sound.beyond, self.sound.keep
        if frozen.positions:
            k = torch.cat((frozen.keys[self.layer], k), dim=1)
            v = torch.cat((frozen.values[self.layer], v), dim=1)
        if keep:
            self.keys.append(k[:, :keep])
            self.values.append(v[:, :keep])
        if beyond is not None and beyond.positions:
            k = torch.cat((beyond.keys[self.layer], k), dim=1)
            v = torch.cat((beyond.values[self.layer], v), dim=1)
        self.layer += 1
        return k, v

    def kept(self) -> Frozen:
        if not self.keys:
            return Frozen()
        return Frozen(self.sound.keep, torch.stack(self.keys), torch.stack(self.values))


@dataclass(frozen=True)
class EncodedSound:
    """One window to encode: `features` [mels, T] of all of it, of which the positions in `frozen`
    are not encoded again, and `keep`, at least as many, shall be frozen afterwards. `beyond`:
    positions that follow on the window and are known already."""

    features: Tensor
    frozen: Frozen = field(default_factory=Frozen)
    keep: int = 0
    beyond: Frozen | None = None

    def room(self, shape: tuple[int, int, int]) -> Pair:
        """Memory that begins with what is frozen and has room for what shall be. `shape`: layers,
        heads, d."""
        frozen = self.frozen
        if frozen.positions:
            return grown((frozen.keys, frozen.values), frozen.room, self.keep)
        layers, heads, width = shape
        return (
            torch.empty(layers, heads, self.keep, width),
            torch.empty(layers, heads, self.keep, width),
        )


class WhisperEncoder(nn.Module):
    """Two convolutions (the second halves the rate to 50 Hz) and a stack of layers.

    Whisper looks both ways, so what comes later changes every position, though the far ones hardly.
    Frozen positions are not touched again: new sound costs what it is long, not what came before.
    Its weights are loaded before it is first called, and not changed afterwards.
    """

    def __init__(self, settings: WhisperSettings) -> None:
        super().__init__()
        self.settings = settings
        self.conv1 = nn.Conv1d(settings.mels, settings.width, kernel_size=3)
        self.conv2 = nn.Conv1d(settings.width, settings.width, kernel_size=3, stride=2)
        self.positions = nn.Parameter(torch.empty(settings.audio_positions, settings.width))
        stack = [EncoderLayer(settings) for _ in range(settings.encoder_layers)]
        # The list is for torch; the typed tuple of the same modules for us.
        self.layers = nn.ModuleList(stack)
        self.stack = tuple(stack)
        self.norm = nn.LayerNorm(settings.width)
        self.packed: WhisperLayers | None = None  # the layers as one native call

    def forward(self, features: Tensor) -> Tensor:
        """[mels, T] log-mel to [ceil(T / 2), D]. Raises ValueError beyond 30 s."""
        return self.encode([EncodedSound(features)])[0][0]

    def encode(self, sounds: Sequence[EncodedSound]) -> list[tuple[Tensor, Frozen]]:
        """Each sound's positions from its frozen ones on, [n, D], and what is frozen now.

        Rows of all sounds go through the layers together. Raises ValueError beyond 30 s.
        """
        return drain(self.encode_in_pieces(sounds))

    def encode_in_pieces(
        self, sounds: Sequence[EncodedSound]
    ) -> Pieces[list[tuple[Tensor, Frozen]]]:
        """`encode`, in one piece where there are few positions, else layer by layer."""
        rows = [self._front(sound) for sound in sounds]
        if self.packed is None:
            x, kept = self._run(rows, sounds)
        else:
            x, kept = yield from self._run_packed(rows, sounds)
        normed = layer_norm(x, self.norm.weight.detach(), self.norm.bias.detach())
        outs = torch.split(normed, [len(part) for part in rows])
        return list(zip(outs, kept, strict=True))

    def _run(
        self, rows: Sequence[Tensor], sounds: Sequence[EncodedSound]
    ) -> tuple[Tensor, list[Frozen]]:
        batch = [_Part(sound, len(x)) for sound, x in zip(sounds, rows, strict=True)]
        x = torch.cat(list(rows))
        for layer in self.stack:
            x = layer(x, batch)
        return x, [part.kept() for part in batch]

    def _run_packed(
        self, rows: Sequence[Tensor], sounds: Sequence[EncodedSound]
    ) -> Pieces[tuple[Tensor, list[Frozen]]]:
        assert self.packed is not None
        rooms = [sound.room(self._shape) for sound in sounds]
        batch = [
            kernel.Sequence(
                rows=len(x),
                k=keys,
                v=values,
                before=sound.frozen.positions,
                keep=sound.keep - sound.frozen.positions,
                far_k=None if sound.beyond is None else sound.beyond.keys,
                far_v=None if sound.beyond is None else sound.beyond.values,
            )
            for x, sound, (keys, values) in zip(rows, sounds, rooms, strict=True)
        ]
        x = torch.cat(list(rows))
        if len(x) < MANY_POSITIONS:
            x = self.packed(x, batch)[0]
        else:
            for layer in range(len(self.stack)):
                yield
                x = self.packed(x, batch, only=layer)[0]
        kept = [
            Frozen(sound.keep, room[0][:, :, : sound.keep], room[1][:, :, : sound.keep], room)
            for sound, room in zip(sounds, rooms, strict=True)
        ]
        return x, kept

    @property
    def _shape(self) -> tuple[int, int, int]:
        """Layers, heads and a head's width."""
        settings = self.settings
        return settings.encoder_layers, settings.heads, settings.head_width

    @functools.cached_property
    def _convolutions(self) -> tuple[conv1d.ConvWeight, conv1d.ConvWeight]:
        """Both convolutions' weights as the kernel reads them."""
        first, second = self.conv1, self.conv2
        assert first.bias is not None
        assert second.bias is not None
        return conv1d.pack(first.weight, first.bias), conv1d.pack(second.weight, second.bias)

    def _front(self, sound: EncodedSound) -> Tensor:
        """The convolutions over what is not frozen, [n, D] with positions added."""
        first = sound.frozen.positions
        # A position sees two frames to either side. Before the first there is nothing: zeros, and
        # zeros again where the second convolution looks before the first one's beginning.
        at_start = first == 0
        frames = (sound.features if at_start else sound.features[:, 2 * first - 2 :]).T
        first_conv, second_conv = self._convolutions
        x = conv1d.conv1d_gelu(F.pad(frames, (0, 0, int(at_start), 1)), first_conv)
        x = conv1d.conv1d_gelu(F.pad(x, (0, 0, int(at_start), 1)), second_conv, stride=2)
        end = first + len(x)
        if end > self.settings.audio_positions:
            raise ValueError(
                f"expected at most {self.settings.audio_positions} audio positions, got {end}"
            )
        return x + self.positions[first:end]


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[T, D] to [heads, T, d]."""
    return x.view(len(x), heads, -1).transpose(0, 1)


def join_heads(x: Tensor) -> Tensor:
    """[heads, T, d] to [T, D]."""
    return x.transpose(0, 1).reshape(x.shape[1], -1)
