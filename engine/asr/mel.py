"""Whisper's log-mel spectrogram, computed once per sample while the sound comes in.

A frame is 25 ms of sound under a Hann window, centred on every 10 ms. Whisper clamps the logarithm
at eight decades under the *loudest frame of the whole sound*, which a stream cannot know. So the
raw log-mel is kept and the clamp is applied when the encoder asks, under a declared policy:

    FINAL    loudest frame held so far: equals Whisper's own features of the sound up to now
    RUNNING  loudest frame up to and including each frame: never revises an earlier frame
    FIXED    a constant: no dependence on the sound at all

Under each of them, sound cut into any chunks gives the features of the whole, and with our kernels
(`headstart.kernels.log_mel`) the same bits on every processor. Reference: `transformers`'
`WhisperFeatureExtractor`, which the tests compare with.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from headstart.kernels.log_mel import FFT_SAMPLES, SAMPLE_RATE_HZ, LogMelFilters

__all__ = [
    "FFT_SAMPLES",
    "FRAMES_PER_SECOND",
    "HOP_SAMPLES",
    "SAMPLE_RATE_HZ",
    "LogMel",
    "MaxPolicy",
    "MelState",
    "loudness",
    "normalise",
]

HOP_SAMPLES = 160
FRAMES_PER_SECOND = SAMPLE_RATE_HZ // HOP_SAMPLES
_HALF_SAMPLES = FFT_SAMPLES // 2
_SILENCE_DECADES = -10.0  # a frame of no power at all
_RANGE_DECADES = 8.0
# The maximum that models trained for streaming use in place of the sound's own (log10 units).
_FIXED_MAX_DECADES = 1.5


class MaxPolicy(StrEnum):
    """Where the clamp's maximum comes from."""

    FINAL = "final"
    RUNNING = "running"
    FIXED = "fixed"


@dataclass
class MelState:
    """One sound's progress.

    `frames` [T, mels]: raw log10 mel power of the frames whose samples are all here and that have
    not been dropped. `carry` [samples]: what the next frame needs, starting half a window before
    its centre. `samples`: received since the start; `dropped`: frames given up at the front.
    """

    frames: Tensor
    carry: Tensor
    samples: int = 0
    dropped: int = 0


class LogMel:
    """Turns samples into frames; holds the filters, no sound."""

    def __init__(self, mels: int = 80, dtype: torch.dtype = torch.float32) -> None:
        """`mels` is 80, or 128 for the newest large models; `dtype`: of the frames, which are
        computed in fp64 either way."""
        self.mels, self.dtype = mels, dtype
        self._filters = LogMelFilters(mels)

    def open(self) -> MelState:
        """The state before the first sample."""
        return MelState(
            frames=torch.empty((0, self.mels), dtype=self.dtype),
            carry=torch.empty(0, dtype=self.dtype),
        )

    def push(self, state: MelState, pcm: Tensor) -> int:
        """Take in `pcm` [samples] fp32; return how many frames became complete."""
        state.samples += len(pcm)
        carry = torch.cat((state.carry, pcm.to(self.dtype)))
        if self._at_start(state):
            if len(carry) <= _HALF_SAMPLES:
                state.carry = carry
                return 0
            carry = _mirror_start(carry)
        frames, state.carry = self._complete(carry)
        state.frames = torch.cat((state.frames, frames))
        return len(frames)

    def tail(self, state: MelState) -> Tensor:
        """[<= 3, mels]: the frames that reach past the last sample, with silence beyond it.

        They are provisional: the next samples replace them. The state stays as it is.
        """
        if state.samples == 0:
            return state.frames[:0]
        carry = state.carry
        if self._at_start(state):
            if len(carry) <= _HALF_SAMPLES:  # too short to mirror: silence fills up
                carry = torch.nn.functional.pad(carry, (0, _HALF_SAMPLES + 1 - len(carry)))
            carry = _mirror_start(carry)
        # Every frame that begins before the sound ends: ceil(len / hop) of them.
        count = -(-len(carry) // HOP_SAMPLES)
        need = (count - 1) * HOP_SAMPLES + FFT_SAMPLES
        return self._complete(torch.nn.functional.pad(carry, (0, need - len(carry))))[0]

    def features(
        self,
        state: MelState,
        policy: MaxPolicy = MaxPolicy.FINAL,
        pad_frames: int = 0,
        even: bool = True,
    ) -> Tensor:
        """[mels, T] normalised features of all frames held, the tail, and `pad_frames` of silence.

        `even` adds a silent frame where the count is odd (the encoder halves it).
        """
        raw = torch.cat((state.frames, self.tail(state)))
        pad = pad_frames + (even and (len(raw) + pad_frames) % 2)
        raw = torch.nn.functional.pad(raw, (0, 0, 0, pad), value=_SILENCE_DECADES)
        return normalise(raw, policy).T

    def drop(self, state: MelState, frames: int) -> None:
        """Give up the first `frames` frames held. Raises ValueError when there are fewer."""
        if not 0 <= frames <= len(state.frames):
            raise ValueError(f"cannot drop {frames} of {len(state.frames)} frames")
        state.frames = state.frames[frames:].clone()
        state.dropped += frames

    def _at_start(self, state: MelState) -> bool:
        return state.dropped == 0 and len(state.frames) == 0

    def _complete(self, carry: Tensor) -> tuple[Tensor, Tensor]:
        """Frames [T, mels] of `carry`, and the samples that the frame after them needs."""
        frames = self._filters(carry.double(), HOP_SAMPLES).to(self.dtype)
        return frames, carry[len(frames) * HOP_SAMPLES :].clone()


def normalise(raw: Tensor, policy: MaxPolicy) -> Tensor:
    """Clamp and scale raw log-mel [T, mels] as Whisper does, with the policy's maximum."""
    if len(raw) == 0:
        return raw
    match policy:
        case MaxPolicy.FINAL:
            top = raw.amax()
        case MaxPolicy.RUNNING:
            top = raw.amax(dim=1, keepdim=True).cummax(dim=0).values
        case MaxPolicy.FIXED:
            top = torch.tensor(_FIXED_MAX_DECADES)
    return (torch.maximum(raw, top - _RANGE_DECADES) + 4.0) / 4.0


def loudness(frames: Tensor) -> Tensor:
    """[T, mels] to the mean over the bands [T], summed in one order: torch's own mean follows the
    width of the processor's vectors, and what is compared with it decides about words."""
    total = frames
    while total.shape[1] % 2 == 0:
        half = total.shape[1] // 2
        total = total[:, :half] + total[:, half:]
    summed = total[:, 0]
    for band in range(1, total.shape[1]):
        summed = summed + total[:, band]
    return summed / frames.shape[1]


def _mirror_start(pcm: Tensor) -> Tensor:
    """`pcm` with half a window of its beginning mirrored before it: frame 0 centres on sample 0."""
    return torch.cat((pcm[1 : _HALF_SAMPLES + 1].flip(0), pcm))
