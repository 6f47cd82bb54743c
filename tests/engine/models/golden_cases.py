"""What the written values of `golden.json` were made of: weights and inputs that depend on nothing
but numpy's frozen `RandomState`, so that no library's version can move them."""

from __future__ import annotations

import zlib

import numpy as np
import torch
from torch import Tensor

from headstart.engine import api
from headstart.engine.models.perception.interface import VideoFrame

WORDS_BEFORE, WORDS_BEHIND = [1, 2, 3], [4, 5]
IMAGE, VIDEO, VISION_BOS, VISION_EOS = 191, 192, 196, 197
AUDIO, AUDIO_BOS, AUDIO_EOS = 190, 193, 194
SOUND_SAMPLES = 38_400  # 2.4 s: a closed window and an open one
STILL_SIZE = (90, 120)  # height, width
MEL_AT = [(frame, band) for frame in (0, 1, 57, 98, 99) for band in (0, 5, 40, 79)]


def weight(name: str, shape: list[int]) -> Tensor:
    """A tensor by its stored name, fp64: norms about 1, biases about 0, matrices lively."""
    numbers = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    if len(shape) > 1:
        return torch.from_numpy(numbers * 1.5 / np.sqrt(np.prod(shape[1:])))
    return torch.from_numpy(numbers * 0.1 + (1.0 if name.endswith("weight") else 0.0))


def frames(count: int, spacing_s: float = 0.5) -> list[VideoFrame]:
    """A camera's, 56 x 84: a merged grid of 2 x 3."""
    random = np.random.RandomState(1)
    return [
        VideoFrame(random.randint(0, 256, (56, 84, 3)).astype(np.uint8), (i // 2) * 2 * spacing_s)
        for i in range(count)
    ]


def sound() -> Tensor:
    """Noise whose loudness falls by half every tenth of a second, and a tone under it."""
    at = np.arange(SOUND_SAMPLES) / api.SAMPLE_RATE_HZ
    noise = np.random.RandomState(2).standard_normal(SOUND_SAMPLES)
    tone = np.sin(2 * np.pi * 440 * at) * 0.01
    return torch.from_numpy((noise * 0.3 * 0.5 ** (at * 10 % 10) + tone).astype(np.float32))


def still() -> api.Image:
    height, width = STILL_SIZE
    rgb = np.random.RandomState(3).randint(0, 256, (height, width, 3)).astype(np.uint8)
    return api.Image(width, height, rgb.tobytes())
