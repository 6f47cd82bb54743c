"""The references are what they say: beside OpenCV, the CPU kernels, and angles in many digits."""

from __future__ import annotations

from decimal import Decimal, getcontext

import cv2
import numpy as np
import pytest
import torch

from headstart.kernels.errors import KernelInputError
from headstart.kernels.gpu import frame_scores, log_mel, reference
from headstart.kernels.gpu.pools import Pools, join, split
from headstart.kernels.log_mel import LogMelFilters
from headstart.kernels.paged_attention import paged_attention
from headstart.kernels.paged_attention.storage import encode


def test_frame_scores_are_opencvs() -> None:
    """Luma, HSV and Laplacian to the bit, over all kinds of pixels."""
    random = np.random.default_rng(1)
    frames = random.integers(0, 256, (3, 40, 53, 3), dtype=np.uint8)
    frames[1] //= 8
    frames[2, :, :, 1] = frames[2, :, :, 0]
    scores = reference.frame_scores(torch.from_numpy(frames))
    luma = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]
    hsv = [cv2.cvtColor(frame, cv2.COLOR_RGB2HSV).astype(int) for frame in frames]
    for i in range(3):
        sharpness = cv2.Laplacian(luma[i].astype(np.float64), cv2.CV_64F).var()
        assert float(scores[i, 2]) == pytest.approx(sharpness, rel=1e-12)
        if i:
            motion = np.abs(luma[i].astype(int) - luma[i - 1]).mean()
            assert float(scores[i, 0]) == pytest.approx(motion, rel=1e-12)
            content = np.abs(hsv[i] - hsv[i - 1]).mean()
            assert float(scores[i, 1]) == pytest.approx(content, rel=1e-12)
    hue, saturation = frame_scores.hsv_tables()
    assert int(hue[0]) == int(saturation[0]) == 0


def test_attention_is_the_cpus() -> None:
    """Chunks as rows of one sequence, pools of int8 with their scales apart."""
    pool = encode(torch.randn(5, 2, 4, 16), torch.int8)
    codes, scale = split(pool)
    assert torch.equal(join(codes, scale).view(torch.int8), pool.view(torch.int8))
    q, tables = torch.randn(3, 4, 16), torch.randperm(5)[None].int()
    starts, contexts = (torch.tensor(x, dtype=torch.int32) for x in ([0, 3], [18]))
    ours = reference.paged_attention(
        q, Pools(codes, codes, scale, scale), tables, starts, contexts, 0.2
    )
    seen = torch.tensor([16, 17, 18], dtype=torch.int32)
    theirs = paged_attention(q, pool, pool, tables, torch.zeros(3).int(), seen, 0.2)
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_mel_tables_are_the_cpus() -> None:
    """The product with windowed sines is the transform: within fp32 of the CPU's fp64."""
    sound = torch.randn(1360, dtype=torch.float64) * 0.1
    exact = LogMelFilters(80)(sound, 160)
    tables = log_mel.mel_tables(80)
    frames = sound.float().unfold(0, 400, 160)
    power = (frames @ tables.cosine).square() + (frames @ tables.sine).square()
    assert torch.allclose((power @ tables.filters).log10().double(), exact, atol=1e-5)
    assert torch.allclose(reference.log_mel(sound, 80, 160), exact, atol=1e-9)
    with pytest.raises(KernelInputError, match="mels"):
        log_mel.mel_tables(129)


def test_turns_are_exact_at_a_thousand_million() -> None:
    """The phase of a far position, in 64-bit integers that wrap, against sixty digits."""
    getcontext().prec = 60
    tau = Decimal("6.28318530717958647692528676655900576839433879875021164194989")
    frequencies = 1e6 ** (-torch.arange(0, 64, 2, dtype=torch.float64) / 64)
    position = 987_654_321
    phases = (torch.tensor(position) * reference.turns(frequencies)).tolist()
    for phase, frequency in zip(phases, frequencies.tolist(), strict=True):
        exact = Decimal(position) * Decimal(frequency) / tau
        apart = abs(Decimal(phase) / 2**64 - exact) % 1
        assert min(apart, 1 - apart) < 2e-8
