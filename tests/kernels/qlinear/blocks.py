"""Random GGUF blocks of every kind, and their values by the `gguf` package."""

from __future__ import annotations

import numpy as np
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize
from torch import Tensor

from headstart.kernels.qlinear.formats import FORMATS, U8

KINDS = tuple(FORMATS)
QUANTIZED = tuple(kind for kind, form in FORMATS.items() if not form.is_float)
# Where a block keeps its float16 scale and minimum, in bytes.
HALVES_AT = {"Q6_K": (208,), "Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,)}


def random_blocks(kind: str, rows: int, cols: int, seed: int = 0) -> U8:
    """Bytes of a weight [rows, cols]: every code and sub-scale can occur; scales near 0.01."""
    generator = np.random.default_rng(seed)
    form = FORMATS[kind]
    if form.is_float:
        values = generator.standard_normal((rows, cols)).astype("<f2" if kind == "F16" else "<f4")
        return values.view(np.uint8).reshape(rows, -1)
    shape = (rows, cols // form.block, form.block_bytes)
    raw = generator.integers(0, 256, shape, dtype=np.uint8)
    for at in HALVES_AT.get(kind, (0, 2)):
        scales = generator.uniform(-0.02, 0.02, shape[:2]).astype("<f2")
        raw[..., at : at + 2] = scales[..., None].view(np.uint8)
    return raw.reshape(rows, -1)


def truth(kind: str, raw: U8, rows: int, cols: int) -> Tensor:
    """fp32 [rows, cols]: the blocks' values, by the `gguf` package."""
    form = FORMATS[kind]
    if form.is_float:
        values = raw.view("<f2" if kind == "F16" else "<f4").astype(np.float32)
    else:
        values = gguf_dequantize(raw, GGMLQuantizationType[kind])
    return torch.from_numpy(values.reshape(rows, cols))
