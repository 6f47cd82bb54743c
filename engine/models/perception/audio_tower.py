"""Qwen2.5-Omni's audio encoder: Whisper's, with attention limited to windows of 2 s.

Each window is convolved, positioned from zero and attended to separately. So a closed window never
changes, and the last, shorter one equals an offline encoding of the sound so far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine.asr.mel import MaxPolicy
from headstart.engine.decoder.layers import LayerNorm, attend, compute_dtype, onto
from headstart.engine.decoder.projection import Projection, projection
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.engine.models.perception.interface import AudioOut, AudioSpec, TailPolicy
from headstart.engine.models.perception.passes import Passes, launched
from headstart.engine.models.perception.sound import SoundState, Spectrogram

EPS = 1e-5


@dataclass(frozen=True, slots=True)
class AudioTowerSizes:
    """Sizes of the encoder, from config.json."""

    mels: int
    width: int
    layers: int
    heads: int
    ffn: int
    half_window: int  # `n_window`: mel frames in half a window; even
    max_positions: int
    output: int

    @property
    def spec(self) -> AudioSpec:
        window = 2 * self.half_window
        return AudioSpec(self.mels, unit_frames=window, unit_tokens=tokens_of(window))


def tokens_of(frames: int) -> int:
    """Number of tokens that `frames` mel frames of one window become."""
    return max(0, ((frames - 1) // 2 + 1) // 2)


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    attn_norm: LayerNorm
    q: Projection
    k: Projection
    v: Projection
    out: Projection
    ffn_norm: LayerNorm
    up: Projection
    down: Projection

    def __call__(self, x: Tensor, heads: int, seen: Tensor | None = None) -> Tensor:
        """[windows, T, width] -> the same; each window attends to itself, or, of itself, to what is
        `seen`, bool [1, T]."""
        return self.following(x, heads, None, seen)[0]

    def following(
        self,
        x: Tensor,
        heads: int,
        before: tuple[Tensor, Tensor] | None,
        seen: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """x [n, T, width], attending to itself and to keys and values `before`; returns the result
        and `before` with its own keys and values appended."""
        normed = self.attn_norm(x)
        q, k, v = (torch.unflatten(p(normed), -1, (heads, -1)) for p in (self.q, self.k, self.v))
        if before is not None:
            k, v = torch.cat((before[0], k), dim=1), torch.cat((before[1], v), dim=1)
        x = x + self.out(attend(q, k, v, seen))
        return x + self.down(F.gelu(self.up(self.ffn_norm(x)))), (k, v)


class WhisperStem:
    """Whisper's two convolutions and its layers, shared by several models."""

    def __init__(self, tensors: Tensors, mels: int, width: int, layers: int, ffn: int) -> None:
        self.width = width
        self._conv1 = _convolution(tensors, "conv1", width, mels)
        self._conv2 = _convolution(tensors, "conv2", width, width)
        self.layers = [_layer(tensors, f"layers.{i}.", width, ffn) for i in range(layers)]

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of features."""
        return self._conv1[0].dtype

    @property
    def device(self) -> torch.device:
        """Where features are. Spectrograms come from the host."""
        return self._conv1[0].device

    def convolve(self, mel: Tensor, seen: Tensor | None = None) -> Tensor:
        """Features [n, mels, T] -> [n, (T - 1) // 2 + 1, width], zero-padded on both sides. `seen`
        bool [T]: which of them there are; the others are zeros."""
        x = F.gelu(F.conv1d(mel, *self._conv1, padding=1))
        if seen is not None:
            x = x * seen  # zeros here too, not the convolution's response to them
        x = F.gelu(F.conv1d(x, *self._conv2, stride=2, padding=1))
        return x.transpose(1, 2)

    def convolve_within(self, mel: Tensor, left: Tensor | None, right: Tensor | None) -> Tensor:
        """Part [mels, T] of a sound -> [(T - 1) // 2 + 1, width], as in a convolution of the whole.
        `left` [mels, 2] precedes it (None: start of the sound), `right` [mels, 1] follows it."""
        edge = mel.new_zeros((len(mel), 2))
        around = [edge if left is None else left, mel, edge[:, :1] if right is None else right]
        part = onto(torch.cat(around, dim=1)[None].to(self.dtype), self.device)
        x = F.gelu(F.conv1d(part, *self._conv1))
        if left is None:
            x[:, :, 0] = 0.0  # zero padding, not the convolution's response to it
        if mel.shape[1] % 2:
            x = F.pad(x, (0, 1))
        x = F.gelu(F.conv1d(x, *self._conv2, stride=2))
        return x[0].T


def _convolution(tensors: Tensors, name: str, width: int, inputs: int) -> tuple[Tensor, Tensor]:
    """Weight and bias in the compute dtype, since they are small and convolutions have no
    stripes."""
    weight = tensors.take(f"{name}.weight", width, inputs, 3)
    bias = tensors.take(f"{name}.bias", width)
    wide = compute_dtype(weight.dtype)
    return weight.to(wide), bias.to(wide)


def _layer(tensors: Tensors, prefix: str, width: int, ffn: int) -> _Layer:
    def linear(name: str, rows: int, cols: int, bias: bool = True) -> Projection:
        weight = tensors.take(f"{prefix}{name}.weight", rows, cols)
        return projection(weight, tensors.take(f"{prefix}{name}.bias", rows) if bias else None)

    return _Layer(
        attn_norm=layer_norm(tensors, f"{prefix}self_attn_layer_norm", width),
        q=linear("self_attn.q_proj", width, width),
        k=linear("self_attn.k_proj", width, width, bias=False),
        v=linear("self_attn.v_proj", width, width),
        out=linear("self_attn.out_proj", width, width),
        ffn_norm=layer_norm(tensors, f"{prefix}final_layer_norm", width),
        up=linear("fc1", ffn, width),
        down=linear("fc2", width, ffn),
    )


def layer_norm(tensors: Tensors, name: str, width: int, eps: float = EPS) -> LayerNorm:
    weight, bias = tensors.take(f"{name}.weight", width), tensors.take(f"{name}.bias", width)
    return LayerNorm(weight, bias, eps)


def sinusoids(length: int, width: int) -> Tensor:
    """Whisper's fixed positions [length, width], fp32 as in training."""
    step = math.log(10_000) / (width // 2 - 1)
    scales = torch.exp(-step * torch.arange(width // 2).float())
    angles = torch.arange(length)[:, None] * scales[None, :]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


@dataclass(frozen=True, slots=True)
class AudioState:
    """Encoding state of one sound."""

    sound: SoundState
    tail: TailPolicy


class AudioTower:
    """The encoder with its projection."""

    def __init__(self, tensors: Tensors, sizes: AudioTowerSizes, policy: MaxPolicy) -> None:
        self.sizes = sizes
        self._stem = WhisperStem(tensors, sizes.mels, sizes.width, sizes.layers, sizes.ffn)
        self._spectrogram = Spectrogram(sizes.mels, policy, self._stem.dtype)
        positions = sinusoids(sizes.max_positions, sizes.width)
        self._positions = positions.to(self._stem.device)
        self._norm = layer_norm(tensors, "ln_post", sizes.width)
        self._proj = projection(
            tensors.take("proj.weight", sizes.output, sizes.width),
            tensors.take("proj.bias", sizes.output),
        )
        self.passes: Passes = launched

    def open(self, tail: TailPolicy) -> AudioState:
        return AudioState(self._spectrogram.open(), tail)

    def encode(self, chunk: Tensor, state: AudioState, final: bool) -> AudioOut:
        """As `StreamModel.encode_audio`."""
        window = 2 * self.sizes.half_window
        sound = self._spectrogram.push(state.sound, chunk)
        closed = []
        while self._spectrogram.complete(sound) >= window:
            mel, sound = self._spectrogram.take(sound, window)
            closed.append(mel)
        committed = [self.encode_windows(torch.stack(closed))] if closed else []
        provisional = self._empty()
        if final or state.tail is TailPolicy.PROVISIONAL:
            provisional = self._encode_rest(self._spectrogram.rest(sound))
        if final:
            committed.append(provisional)
            provisional = self._empty()
        return AudioOut(
            torch.cat([*committed, self._empty()]), provisional, AudioState(sound, state.tail)
        )

    def _encode_rest(self, mel: Tensor) -> Tensor:
        """[mels, T]: at most a window and the few frames that padding completes."""
        window = 2 * self.sizes.half_window
        return torch.cat(
            [self.encode_windows(part[None]) for part in torch.split(mel, window, dim=1)]
            or [self._empty()]
        )

    def _empty(self) -> Tensor:
        shape = (0, self.sizes.width)
        return torch.empty(shape, dtype=self._stem.dtype, device=self._stem.device)

    def encode_windows(self, mel: Tensor) -> Tensor:
        """Windows of equal length [n, mels, T <= window] -> [n * tokens, width]."""
        count, frames = len(mel), mel.shape[2]
        tokens = tokens_of(frames)
        if tokens == 0:
            return self._empty()
        mel = onto(mel.to(self._stem.dtype), self._stem.device)
        if self.passes is launched:
            return self._layers(mel).flatten(0, 1)
        # Few sizes, so that all are recorded: quarters of a window, and one, two, four of them.
        wide, many = self._filled_to(frames), 1 << (count - 1).bit_length()
        mel = F.pad(mel, (0, wide - frames, 0, 0, 0, many - count))
        heard = torch.full((1,), frames, device=mel.device)
        rows = many * wide // 2
        out = self.passes("audio", self._layers, mel, heard, rows=rows, often=True)
        return out[:count, :tokens].flatten(0, 1)

    def record(self) -> None:
        """Have passes over one window recorded, of every length."""
        window = 2 * self.sizes.half_window
        for frames in sorted({self._filled_to(n) for n in range(1, window + 1)}):
            self.encode_windows(torch.zeros(1, self.sizes.mels, frames))

    def _filled_to(self, frames: int) -> int:
        """Frames that so many are filled up to: quarters of a window, and even."""
        window = 2 * self.sizes.half_window
        step = max(window // 8 * 2, 2)
        return min(-(-frames // step) * step, window)

    def _layers(self, mel: Tensor, heard: Tensor | None = None) -> Tensor:
        """[n, mels, T] -> [n, tokens of T, width]. `heard` int64 [1]: frames of T that there are;
        the others are zeros, and nothing attends to them. None: all."""
        seen = None
        if heard is not None:
            seen = torch.arange(mel.shape[2], device=mel.device) < heard
        x = self._stem.convolve(mel, seen)
        x = x + self._positions[: x.shape[1]].to(x.dtype)
        keys = None if seen is None else seen[::2][None]
        for layer in self._stem.layers:
            x = layer(x, self.sizes.heads, keys)
        even = x.shape[1] // 2 * 2
        return torch.unflatten(x[:, :even], 1, (-1, 2)).mean(dim=2)

    def project(self, features: Tensor) -> Tensor:
        """[n, width] -> [n, output]."""
        return self._proj(self._norm(features))
