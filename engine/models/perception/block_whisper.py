"""Whisper's encoder of any size with block-causal attention: a block attends to itself and earlier
blocks.

Keys and values of closed blocks are cached, so each frame is encoded once. Released Whispers attend
30 s both ways; the loss from blocks depends on the model's training (Ultravox-shaped models are
trained for it). Positions end after 30 s; then a new segment begins, which does not attend to
earlier segments.

A block of B encoder frames (20 ms each) takes 2 B mel frames, and one more for the convolutions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine.asr.mel import MaxPolicy
from headstart.engine.errors import BadSettings
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.engine.models.perception.audio_tower import WhisperStem, layer_norm
from headstart.engine.models.perception.interface import AudioOut, AudioSpec, TailPolicy
from headstart.engine.models.perception.sound import SoundState, Spectrogram

KeysValues = tuple[Tensor, Tensor]  # each [1, frames, heads, head_dim]


@dataclass(frozen=True, slots=True)
class BlockWhisperSizes:
    """`block`: encoder frames that are committed together; `stack`: frames per token."""

    mels: int
    width: int
    layers: int
    heads: int
    ffn: int
    max_positions: int
    block: int
    stack: int

    @property
    def spec(self) -> AudioSpec:
        return AudioSpec(
            self.mels,
            unit_frames=2 * self.block,
            unit_tokens=self.block // self.stack,
            look_ahead_frames=1,
        )


@dataclass(frozen=True, slots=True)
class BlockState:
    """`left` [mels, 2]: mel frames before the open block; None at the sound's beginning. `seen`:
    keys and values by layer, of the segment's closed blocks; `position`: frames in them."""

    sound: SoundState
    tail: TailPolicy
    left: Tensor | None = None
    seen: tuple[KeysValues, ...] | None = None
    position: int = 0


class BlockWhisper:
    """The encoder. Features are stacked frames [tokens, stack * width]."""

    def __init__(self, tensors: Tensors, sizes: BlockWhisperSizes, policy: MaxPolicy) -> None:
        """Raises `BadSettings` for a block that is not a multiple of the stack or does not divide
        the positions, and `BadWeights` for the tensors."""
        if sizes.block % sizes.stack or sizes.max_positions % sizes.block:
            expected = f"a multiple of {sizes.stack} that divides {sizes.max_positions}"
            raise BadSettings("audio block", expected, sizes.block)
        self.sizes = sizes
        self._stem = WhisperStem(tensors, sizes.mels, sizes.width, sizes.layers, sizes.ffn)
        positions = (sizes.max_positions, sizes.width)
        self._positions = tensors.take("embed_positions.weight", *positions)
        self._norm = layer_norm(tensors, "layer_norm", sizes.width)
        self._spectrogram = Spectrogram(sizes.mels, policy, self._stem.dtype)

    def open(self, tail: TailPolicy) -> BlockState:
        return BlockState(self._spectrogram.open(), tail)

    def encode(self, chunk: Tensor, state: BlockState, final: bool) -> AudioOut:
        """As `StreamModel.encode_audio`."""
        mel_frames = 2 * self.sizes.block
        sound = self._spectrogram.push(state.sound, chunk)
        state = BlockState(sound, state.tail, state.left, state.seen, state.position)
        committed = [self._empty()]
        while self._spectrogram.complete(state.sound) > mel_frames:
            # With one frame behind the block, as the convolution needs.
            both, _ = self._spectrogram.take(state.sound, mel_frames + 1)
            mel, sound = self._spectrogram.take(state.sound, mel_frames)
            features, seen = self._block(mel, state, right=both[:, -1:])
            committed.append(self._stacked(features))
            state = self._behind(state, sound, mel, seen)
        provisional = self._empty()
        if final or state.tail is TailPolicy.PROVISIONAL:
            provisional = self._rest(state)
        if final:
            committed.append(provisional)
            provisional = self._empty()
        return AudioOut(torch.cat(committed), provisional, state)

    def _behind(
        self, state: BlockState, sound: SoundState, mel: Tensor, seen: tuple[KeysValues, ...]
    ) -> BlockState:
        """The state behind a closed block; behind the last position a new segment begins."""
        position = state.position + self.sizes.block
        if position == self.sizes.max_positions:
            return BlockState(sound, state.tail, mel[:, -2:])
        return BlockState(sound, state.tail, mel[:, -2:], seen, position)

    def _rest(self, state: BlockState) -> Tensor:
        """Tokens of the open block as if the sound ended here: at most a block and its last
        frames."""
        mel, mel_frames = self._spectrogram.rest(state.sound), 2 * self.sizes.block
        out = [self._empty()]
        while mel.shape[1]:
            part, mel = mel[:, :mel_frames], mel[:, mel_frames:]
            right = mel[:, :1] if mel.shape[1] else None
            features, seen = self._block(part, state, right)
            out.append(self._stacked(features))
            state = self._behind(state, state.sound, part, seen)
        return torch.cat(out)

    def _block(
        self, mel: Tensor, state: BlockState, right: Tensor | None
    ) -> tuple[Tensor, tuple[KeysValues, ...]]:
        """Features [frames, width] of one block [mels, T], and keys and values up to its end."""
        x = self._stem.convolve_within(mel, state.left, right)[None]
        x = x + self._positions[state.position : state.position + x.shape[1]].to(x.dtype)
        seen = []
        for i, layer in enumerate(self._stem.layers):
            before = state.seen[i] if state.seen is not None else None
            x, kept = layer.following(x, self.sizes.heads, before)
            seen.append(kept)
        return self._norm(x)[0], tuple(seen)

    def _stacked(self, features: Tensor) -> Tensor:
        """[frames, width] -> [tokens, stack * width], zero-padded to whole tokens."""
        missing = -len(features) % self.sizes.stack
        return F.pad(features, (0, 0, 0, missing)).reshape(-1, self.sizes.stack * self.sizes.width)

    def _empty(self) -> Tensor:
        shape = (0, self.sizes.stack * self.sizes.width)
        return torch.empty(shape, dtype=self._stem.dtype, device=self._stem.device)
