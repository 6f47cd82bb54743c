"""Samples that encoders are calibrated on: pictures with surfaces, edges, texture and colours, and
a sound with tones, noise and silence. They are made, so that no file is needed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from headstart.engine.chat.render import Modality
from headstart.engine.models.perception.clips import encode_picture
from headstart.engine.models.perception.interface import StreamModel, TailPolicy, VideoFrame
from headstart.engine.models.perception.pixels import Rgb

PICTURES = 3
SIDE_PX = 224
SAMPLE_RATE_HZ = 16_000
SOUND_S = 4


def picture(seed: int, side_px: int = SIDE_PX) -> Rgb:
    """A gradient, discs and bars of random colours, and noise on a third of it."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:side_px, 0:side_px] / side_px
    mixed = (x + y)[..., None] / 2
    rgb = rng.uniform(0, 255, 3) * (1 - mixed) + rng.uniform(0, 255, 3) * mixed
    for _ in range(6):
        centre, radius = rng.uniform(0, 1, 2), rng.uniform(0.03, 0.25)
        disc = (x - centre[0]) ** 2 + (y - centre[1]) ** 2 < radius**2
        rgb[disc] = rng.uniform(0, 255, 3)
    bars = (np.floor(x * rng.integers(8, 60)) % 2 == 0) & (y > 0.8)
    rgb[bars] = rng.uniform(0, 255, 3)
    rgb[: side_px // 3] += rng.normal(0, 30, (side_px // 3, side_px, 3))
    made: Rgb = np.clip(rgb, 0, 255).astype(np.uint8)
    return made


def sound() -> Tensor:
    """[samples] fp32 at 16 kHz."""
    rng = np.random.default_rng(0)
    at_s = np.arange(SOUND_S * SAMPLE_RATE_HZ) / SAMPLE_RATE_HZ
    tones = sum(np.sin(2 * np.pi * hz * at_s * (1 + 0.1 * at_s)) for hz in (120, 240, 700, 2_400))
    loud = np.clip(np.sin(2 * np.pi * 1.5 * at_s), 0, 1)
    noise = rng.standard_normal(len(at_s)) * 0.05
    return torch.from_numpy(((0.1 * tones + noise) * loud).astype(np.float32))


def encode_samples(model: StreamModel, *, pictures: bool = True, sounds: bool = True) -> None:
    """Encode all samples that the model has a sense for."""
    if pictures and model.spec.vision is not None:
        for seed in range(PICTURES):
            encode_picture(model, VideoFrame(picture(seed)), live=True)
    if sounds and model.spec.audio is not None:
        heard = model.encode_audio(sound(), model.open_audio(TailPolicy.CLOSED), True)
        model.project(heard.committed, Modality.AUDIO)
