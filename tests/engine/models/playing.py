"""Playing a clip into a stream as live sessions do, in random pieces."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.perception.clips import ClipEncoder
from headstart.engine.models.perception.interface import TailPolicy, VideoFrame
from tests.engine.models.rig import Rig


@dataclass(frozen=True)
class Sounded:
    """One clip as the reference gets it."""

    pcm: Tensor | None = None
    frames: Sequence[VideoFrame] = ()
    seconds_per_unit: float = 1.0


def speech(chance: random.Random, samples: int) -> Tensor:
    """A sound whose loudness wanders, so that the clamp of the features bites."""
    rng = np.random.default_rng(chance.randint(0, 2**32))
    loudness = np.repeat(10.0 ** rng.uniform(-6, 0, samples // 800 + 1), 800)[:samples]
    return torch.from_numpy((rng.standard_normal(samples) * loudness).astype(np.float32))


def camera(chance: random.Random, count: int, seconds_per_unit: float) -> list[VideoFrame]:
    """`count` frames of one random size, two to a unit."""
    rng = np.random.default_rng(chance.randint(0, 2**32))
    size = (28 * chance.randint(1, 5), 28 * chance.randint(1, 6), 3)
    return [
        VideoFrame(rng.integers(0, 256, size, dtype=np.uint8), (i // 2) * seconds_per_unit)
        for i in range(count)
    ]


def play(rig: Rig, stream: Stream, clip: Sounded, tail: TailPolicy, chance: random.Random) -> None:
    """Push a clip into the stream in random pieces: sound and frames in any order of arrival,
    speculative endings thrown away, prefill in steps of any length."""
    perception = ClipEncoder(rig.model, stream.soft, tail)
    start = len(stream)
    sound, frames = clip.pcm, list(clip.frames)
    at = 0
    while (sound is not None and at < len(sound)) or frames:
        if frames and (sound is None or at >= len(sound) or chance.random() < 0.5):
            count = chance.randint(1, 3)
            perception.see(frames[:count])
            del frames[:count]
        elif sound is not None:
            count = chance.choice([1, 150, 3_200, 8_000, 40_000])
            perception.feed(sound[at : at + count])
            at += count
        stream.reconcile(perception.ids(), start)
        if chance.random() < 0.3:
            rig.settle(stream, chance)
        if chance.random() < 0.2:  # an ending that does not come: an answer is begun and dropped
            perception.finish()
            stream.reconcile([*perception.ids(), 5, 6, 7], start)
            asked = len(stream)
            rig.settle(stream, chance)
            stream.append([8, 9])
            rig.settle(stream, chance)
            stream.truncate(asked)
    perception.finish()
    stream.reconcile(perception.ids(), start)
