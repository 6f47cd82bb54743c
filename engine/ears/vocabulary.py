"""The decoder's embedding, which is also its vocabulary head: over half of a small Whisper.

A head step reads the whole matrix for one row, so its bytes are its time: packed, it takes a
quarter of them.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from engine.ears.packed import pack_q8_0
from kernels.qlinear import qlinear, rows


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
    """In int8."""

    def __init__(self, weight: Tensor) -> None:
        """`weight` [vocabulary, D] of any floating type; D is a multiple of 32."""
        self._weight = pack_q8_0(weight)

    def embed(self, tokens: Tensor) -> Tensor:
        return rows(self._weight, tokens)

    def logits(self, hidden: Tensor) -> Tensor:
        return qlinear(hidden, self._weight)
