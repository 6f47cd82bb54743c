"""What is kept of a sound and of a text, and what is given to the encoder and the decoder.

`Frozen` holds keys and values of a sound in the encoder, `CrossCache` those that the decoder
attends to. `TextCache` holds those of the tokens run so far and can be cut back to any length, so a
guess of several tokens is checked in one pass and only its right beginning kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from headstart.engine.asr.whisper.settings import WhisperSettings

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
    made = tuple(part.new_empty(layers, heads, capacity, width) for part in known)
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

    def behind(self, new: Pair | None) -> Frozen:
        """What is frozen now, with keys and values `new` of the positions that became so."""
        if not self.keep:
            return Frozen()
        if new is None:
            return self.frozen
        if not self.frozen.positions:
            return Frozen(self.keep, new[0].clone(), new[1].clone())
        keys = torch.cat((self.frozen.keys, new[0]), dim=2)
        return Frozen(self.keep, keys, torch.cat((self.frozen.values, new[1]), dim=2))

    @property
    def known(self) -> int:
        """How many positions are attended to and not encoded."""
        return self.frozen.positions + (0 if self.beyond is None else self.beyond.positions)


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

    def whole(self) -> Pair:
        """Keys and values with those beyond; without any, in the same memory."""
        own = self.keys, self.values
        if self.beyond is None:
            return own
        keys, values = (
            torch.cat(parts, dim=2) for parts in zip(own, self.beyond.whole(), strict=True)
        )
        return keys, values


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
