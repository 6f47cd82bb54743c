"""Plain torch softmax, of which one entry of each row is taken."""

from __future__ import annotations

from torch import Tensor


def picked(logits: Tensor, ids: Tensor, *, as_log: bool) -> Tensor:
    """Logits [n, V] and ids [n] -> [n]: softmax, or its logarithm, at each row's id."""
    all_of_them = logits.log_softmax(dim=-1) if as_log else logits.softmax(dim=-1)
    return all_of_them.gather(1, ids[:, None])[:, 0]
