"""The decoder's embedding, which is also its vocabulary head: over half of a small Whisper.

A head step reads the whole matrix for one row, so its bytes are its time. Packed as Q8_0 (int8 in
groups of 32, as in GGUF) it takes a quarter of fp32's and is multiplied by the kernel of the LLM.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from kernels.qlinear import QWeight, pack, qlinear, rows

_GROUP = 32
_INT8_MAX = 127


class Vocabulary(Protocol):
    """One row per token."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Token ids [n] to fp32 rows [n, D]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """fp32 [n, D] to fp32 [n, vocabulary]."""


class ExactVocabulary:
    """In fp32: for comparing with other implementations."""

    def __init__(self, weight: Tensor) -> None:
        """`weight` [vocabulary, D] of any floating type."""
        self._weight = weight.float()

    def embed(self, tokens: Tensor) -> Tensor:
        return self._weight[tokens]

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ self._weight.T


class PackedVocabulary:
    """In int8. `hidden` is quantised too, row by row: a row's logits depend on that row alone."""

    def __init__(self, weight: Tensor) -> None:
        """`weight` [vocabulary, D] of any floating type; D is a multiple of 32."""
        self._weight = pack_q8_0(weight)

    def embed(self, tokens: Tensor) -> Tensor:
        return rows(self._weight, tokens)

    def logits(self, hidden: Tensor) -> Tensor:
        return qlinear(hidden, self._weight)


def pack_q8_0(weight: Tensor) -> QWeight:
    """Quantise [N, K], K a multiple of 32: per group an fp16 scale and 32 int8."""
    count, width = weight.shape
    groups = weight.float().reshape(-1, _GROUP)
    scales = (groups.abs().amax(dim=1) / _INT8_MAX).half()
    inverse = torch.where(scales > 0, scales.float().reciprocal(), 0.0)
    steps = (groups * inverse[:, None]).round().clamp(-_INT8_MAX, _INT8_MAX).to(torch.int8)
    blocks = torch.cat((scales[:, None].view(torch.uint8), steps.view(torch.uint8)), dim=1)
    return pack("Q8_0", blocks.numpy(), count, width)
