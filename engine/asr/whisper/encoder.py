"""Whisper's audio encoder, of any length up to 30 s.

The authors pad every sound to 30 s. We encode only what there is, which costs a tenth for a short
utterance; positions are absolute, so the same weights serve. Checked against `transformers`. With
our kernels and packed layers its bits are the same on every processor.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headstart.engine.asr.whisper import torch_layers
from headstart.engine.asr.whisper.caches import EncodedSound, Frozen
from headstart.engine.asr.whisper.modules import EncoderLayer
from headstart.engine.asr.whisper.pieces import Pieces, drain
from headstart.engine.asr.whisper.settings import WhisperSettings
from headstart.kernels import conv1d
from headstart.kernels import whisper_layers as kernel
from headstart.kernels.layer_norm import layer_norm
from headstart.kernels.whisper_layers import WhisperLayers

POSITIONS_PER_SECOND = 50

MANY_POSITIONS = 256
"""From so many on, each layer is a piece of work of its own. A chunk brings fewer."""


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
        rows = self._fronts(sounds)
        if self.packed is None:
            x, kept = self._run(rows, sounds)
        else:
            x, kept = yield from self._run_packed(rows, sounds)
        outs = torch.split(self._normed(x), [len(part) for part in rows])
        return list(zip(outs, kept, strict=True))

    def _run(
        self, rows: Sequence[Tensor], sounds: Sequence[EncodedSound]
    ) -> tuple[Tensor, list[Frozen]]:
        outs, new = torch_layers.encode(self.stack, rows, sounds)
        frozen = [sound.behind(part) for sound, part in zip(sounds, new, strict=True)]
        return torch.cat(outs), frozen

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

    def _normed(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.norm.weight.detach(), self.norm.bias.detach())

    def _fronts(self, sounds: Sequence[EncodedSound]) -> list[Tensor]:
        """The convolutions over what is not frozen, [n, D] of each with positions added."""
        return [self._front(sound) for sound in sounds]

    def _front(self, sound: EncodedSound) -> Tensor:
        first = sound.frozen.positions
        # A position sees two frames to either side. Before the first there is nothing: zeros, and
        # zeros again where the second convolution looks before the first one's beginning.
        at_start = first == 0
        frames = (sound.features if at_start else sound.features[:, 2 * first - 2 :]).T
        first_conv, second_conv = self._convolutions
        x = conv1d.conv1d_gelu(F.pad(frames, (0, 0, int(at_start), 1)), first_conv)
        x = conv1d.conv1d_gelu(F.pad(x, (0, 0, int(at_start), 1)), second_conv, stride=2)
        return x + self.positions[self._places(first, len(x))]

    def _places(self, first: int, count: int) -> slice:
        """Of so many positions. Raises ValueError beyond 30 s."""
        end = first + count
        if end > self.settings.audio_positions:
            raise ValueError(
                f"expected at most {self.settings.audio_positions} audio positions, got {end}"
            )
        return slice(first, end)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[T, D] to [heads, T, d]."""
    return x.view(len(x), heads, -1).transpose(0, 1)
