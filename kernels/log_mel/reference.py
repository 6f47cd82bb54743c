"""Plain torch: the same frames through torch's Fourier transform."""

from __future__ import annotations

import torch
from torch import Tensor

from headstart.kernels.log_mel.tables import FFT_SAMPLES, Tables

_LEAST = 1e-10


def log_mel(tables: Tables, samples: Tensor, frames: int, hop: int) -> Tensor:
    """fp64 [n] -> fp64 [frames, mels]."""
    if not frames:
        return samples.new_empty((0, tables.mels))
    windows = samples.unfold(0, FFT_SAMPLES, hop) * tables.window
    power = torch.fft.rfft(windows).abs().square()
    decades: Tensor = (power @ tables.filters).clamp_min(_LEAST).log10()
    return decades
