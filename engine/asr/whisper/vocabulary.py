"""The decoder's embedding, as a rule also its vocabulary head: over half of a small Whisper.

A head step reads the whole matrix for one row, so its bytes are its time: packed, it takes a
quarter of them.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from headstart.kernels.qlinear import QWeight, qlinear, rows


class Vocabulary(Protocol):
    """One row per token."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Token ids [n] to fp32 rows [n, D]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """fp32 [n, D] to fp32 [n, vocabulary]."""


class ExactVocabulary:
    """In fp32: for comparing with other implementations."""

    def __init__(self, weight: Tensor, head: Tensor | None = None) -> None:
        """`weight` [vocabulary, D] of any floating type; `head`, where that is another matrix."""
        self._weight = weight.float()
        self.head = None if head is None else head.float()

    def embed(self, tokens: Tensor) -> Tensor:
        return self._weight[tokens]

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ (self._weight if self.head is None else self.head).T


class PackedVocabulary:
    """In int8."""

    def __init__(self, weight: QWeight, head: QWeight | None = None) -> None:
        """As `ExactVocabulary`, packed."""
        self._weight = weight
        self._head = weight if head is None else head

    def embed(self, tokens: Tensor) -> Tensor:
        return rows(self._weight, tokens)

    def logits(self, hidden: Tensor) -> Tensor:
        return qlinear(hidden, self._head)
