"""Plain torch softmax at one entry per row."""

from __future__ import annotations

from torch import Tensor


def picked(logits: Tensor, ids: Tensor, *, as_log: bool) -> Tensor:
    """Logits [n, V] and ids [n] -> [n]: softmax, or its logarithm, at each row's id."""
    values = logits.log_softmax(dim=-1) if as_log else logits.softmax(dim=-1)
    return values.gather(1, ids[:, None])[:, 0]
