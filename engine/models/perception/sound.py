"""Sound to features, unit by unit, under a declared maximum of the log-mel spectrogram.

Whisper's features are clamped under the loudest frame of the *whole* sound, which a stream can't
know. `FIXED` takes a constant, `RUNNING` the loudest frame so far; either way a frame never changes
once it is there, so that a unit that was encoded stays right. "Streamed equals offline" is said
of one forward over features made under the same policy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headstart.engine.asr.mel import HOP_SAMPLES, LogMel, MaxPolicy, MelState
from headstart.engine.errors import BadSettings

_RANGE = 8.0  # log10 units under the maximum that are kept
_FIXED_MAX = 1.5
_FLOOR = -10.0


@dataclass(frozen=True, slots=True)
class SoundState:
    """Progress of one sound: raw frames of the open unit, and the loudest value before them."""

    mel: MelState
    loudest: float = _FLOOR
    frame: int = 0  # first frame of the open unit


class Spectrogram:
    """Log-mel features of sound that comes in pieces."""

    def __init__(
        self,
        mels: int,
        policy: MaxPolicy = MaxPolicy.RUNNING,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Raises `BadSettings` for a policy that needs the end of the sound."""
        if policy is MaxPolicy.FINAL:
            raise BadSettings("mel_policy", "fixed or running", policy.value)
        self._mel = LogMel(mels, dtype)
        self._policy = policy

    def open(self) -> SoundState:
        return SoundState(self._mel.open())

    def push(self, state: SoundState, pcm: Tensor) -> SoundState:
        """The state after `pcm` [samples] fp32 more."""
        mel = replace(state.mel)
        self._mel.push(mel, pcm)
        return replace(state, mel=mel)

    def complete(self, state: SoundState) -> int:
        """Frames in the open unit that no further sound changes."""
        return len(state.mel.frames)

    def take(self, state: SoundState, frames: int) -> tuple[Tensor, SoundState]:
        """Features [mels, frames] from the front of the open unit, and the state behind them."""
        raw = state.mel.frames[:frames]
        mel = replace(state.mel)
        self._mel.drop(mel, frames)
        loudest = max(state.loudest, float(raw.max())) if len(raw) else state.loudest
        behind = SoundState(mel, loudest, state.frame + frames)
        return self._scaled(raw, state.loudest), behind

    def rest(self, state: SoundState) -> Tensor:
        """Features [mels, T] of the open unit if the sound ended here, with silence beyond it: a
        frame for each 10 ms begun, as the models' own feature extractors count."""
        mel = state.mel
        count = -(-mel.samples // HOP_SAMPLES) - mel.dropped
        raw = torch.cat((mel.frames, self._mel.tail(mel)))[: max(count, 0)]
        return self._scaled(raw, state.loudest)

    def _scaled(self, raw: Tensor, loudest: float) -> Tensor:
        if len(raw) == 0:
            return raw.T
        if self._policy is MaxPolicy.FIXED:
            top = torch.tensor(_FIXED_MAX, dtype=raw.dtype)
        else:
            top = raw.amax(dim=1, keepdim=True).cummax(dim=0).values.clamp_min(loudest)
        return ((torch.maximum(raw, top - _RANGE) + 4.0) / 4.0).T
