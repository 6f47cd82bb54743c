"""Quantisation of float weights to int8, with a scale for every 32 of them (GGUF's Q8_0)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.engine.errors import BadSettings
from headstart.kernels.qlinear import QWeight, pack

GROUP = 32
_LARGEST = 127
_BLOCK_BYTES = 2 + GROUP
_STRIPE_WEIGHTS = 1 << 20  # quantised at a time; takes about five times that in fp32


def quantise(weight: Tensor) -> QWeight:
    """Quantise [rows, cols] of any float dtype, symmetric, in groups of 32 along cols. Raises
    `BadSettings` if cols is not a multiple of 32."""
    rows, cols = weight.shape
    return pack("Q8_0", blocks_of(weight).reshape(-1, _BLOCK_BYTES), rows, cols)


def blocks_of(weight: Tensor) -> npt.NDArray[np.uint8]:
    """`quantise` as GGUF stores it: [rows, blocks of a row, bytes of a block]."""
    rows, cols = weight.shape
    if cols % GROUP:
        raise BadSettings("weights", f"rows of a multiple of {GROUP} for int8", cols)
    raw = np.empty((rows, cols // GROUP, _BLOCK_BYTES), dtype=np.uint8)
    stripe = max(1, _STRIPE_WEIGHTS // cols)
    for at in range(0, rows, stripe):
        part = weight[at : at + stripe]
        raw[at : at + stripe] = _blocks(part).reshape(len(part), -1, _BLOCK_BYTES)
    return raw


def _blocks(weight: Tensor) -> npt.NDArray[np.uint8]:
    """Q8_0 blocks [groups, 34]: an fp16 scale and 32 integers."""
    groups = weight.float().reshape(-1, GROUP)
    scales = (groups.abs().amax(dim=1) / _LARGEST).half()
    inverse = torch.where(scales > 0, 1.0 / scales.float(), 0.0)
    codes = (groups * inverse[:, None]).round().clamp(-_LARGEST, _LARGEST).to(torch.int8)
    raw = np.empty((len(groups), _BLOCK_BYTES), dtype=np.uint8)
    raw[:, :2] = scales.numpy().view(np.uint8).reshape(-1, 2)
    raw[:, 2:] = codes.numpy().view(np.uint8)
    return raw
