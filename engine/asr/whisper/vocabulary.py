"""The decoder's embedding, as a rule also its vocabulary head: over half of a small Whisper.

A head step reads the whole matrix for one row, so its bytes are its time: packed, it takes a
quarter of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headstart.kernels.picked_softmax import best_log_softmax, picked_softmax
from headstart.kernels.qlinear import QWeight, qlinear, rows


class Vocabulary:
    """One row per token; its numbers, and what is made of them, are on one device: the host."""

    def embed(self, tokens: Tensor) -> Tensor:
        """Token ids [n] to fp32 rows [n, D]."""
        raise NotImplementedError

    def logits(self, hidden: Tensor) -> Tensor:
        """fp32 [n, D] to fp32 [n, vocabulary]."""
        raise NotImplementedError

    def table(self, added: Tensor) -> Tensor:
        """fp32 [m, vocabulary] for `best`, where the logits are."""
        return added

    def best(
        self, hidden: Tensor, added: Tensor, which: Sequence[int]
    ) -> tuple[list[int], list[float]]:
        """The token of each row [n, D] with the largest logit, to which row `which` [n] of the
        table `added` was added, and the logarithm of its probability then."""
        return best_log_softmax(self.logits(hidden), added, which)

    def probability(self, hidden: Tensor, token: int) -> list[float]:
        """Of `token`, by each row [n, D]."""
        logits = self.logits(hidden)
        asked = torch.full((len(logits),), token)
        found: list[float] = picked_softmax(logits, asked).tolist()
        return found


class ExactVocabulary(Vocabulary):
    """In fp32: for comparing with other implementations."""

    def __init__(self, weight: Tensor, head: Tensor | None = None) -> None:
        """`weight` [vocabulary, D] of any floating type; `head`, where that is another matrix."""
        self.weight = weight.float()
        self.head = None if head is None else head.float()

    def embed(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens]

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ (self.weight if self.head is None else self.head).T


class PackedVocabulary(Vocabulary):
    """In int8."""

    def __init__(self, weight: QWeight, head: QWeight | None = None) -> None:
        """As `ExactVocabulary`, packed."""
        self._weight = weight
        self._head = weight if head is None else head

    def embed(self, tokens: Tensor) -> Tensor:
        return rows(self._weight, tokens)

    def logits(self, hidden: Tensor) -> Tensor:
        return qlinear(hidden, self._head)
