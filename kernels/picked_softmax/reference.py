"""Plain torch softmax at one entry per row."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def picked(logits: Tensor, ids: Tensor, *, as_log: bool) -> Tensor:
    """Logits [n, V] and ids [n] -> [n]: softmax, or its logarithm, at each row's id."""
    values = logits.log_softmax(dim=-1) if as_log else logits.softmax(dim=-1)
    return values.gather(1, ids[:, None])[:, 0]


def best(logits: Tensor, masks: Tensor, which: Sequence[int]) -> tuple[list[int], list[float]]:
    """Logits [n, V], masks [m, V] and which of them [n] -> [n] and [n]: the largest entry of each
    row with its mask, and its log-softmax."""
    masked = logits + masks[list(which)]
    ids = masked.argmax(dim=-1)
    return ids.tolist(), picked(masked, ids, as_log=True).tolist()
