"""Log-mel features of streamed sound, with a declared policy for the spectrogram's maximum.

Whisper clamps features relative to the loudest frame of the *whole* sound, which a stream cannot
know. `FIXED` uses a constant, `RUNNING` the loudest frame so far. Either way a frame never changes
once computed, so encoded units stay valid. "Streamed equals offline" compares with one forward pass
over features under the same policy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from headstart.engine.asr.mel import HOP_SAMPLES, LogMel, MaxPolicy, MelState
from headstart.engine.errors import BadSettings

_RANGE = 8.0  # log10 units kept below the maximum
_FIXED_MAX = 1.5
_FLOOR = -10.0


@dataclass(frozen=True, slots=True)
class SoundState:
    """State of one sound: raw frames of the open unit, and the loudest value before them."""

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
        """Raises `BadSettings` for a policy that needs the whole sound."""
        if policy is MaxPolicy.FINAL:
            raise BadSettings("mel_policy", "fixed or running", policy.value)
        self._mel = LogMel(mels, dtype)
        self._policy = policy

    def open(self) -> SoundState:
        return SoundState(self._mel.open())

    def push(self, state: SoundState, pcm: Tensor) -> SoundState:
        """The state after `pcm` [samples] fp32."""
        mel = replace(state.mel)
        self._mel.push(mel, pcm)
        return replace(state, mel=mel)

    def complete(self, state: SoundState) -> int:
        """Number of frames in the open unit that further sound will not change."""
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
        """Features [mels, T] of the open unit as if the sound ended here, zero-padded: one frame
        for each 10 ms begun, as the models' feature extractors count."""
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
