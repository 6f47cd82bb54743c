"""How much attention the newest tokens pay to each cached token.

A window of the newest queries stands for what is asked next (as in SnapKV, Li et al. 2024). Their
attention is computed once, when somebody asks, from the queries and the stored keys.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from headstart.engine.kvcache.storage import KvCache

WINDOW_TOKENS = 16

Mass = npt.NDArray[np.float32]


class QueryWindow:
    """The newest `WINDOW_TOKENS` queries of one stream, each [layers, heads, head_dim]."""

    def __init__(self) -> None:
        self._queries: deque[Tensor] = deque(maxlen=WINDOW_TOKENS)

    def add(self, query: Tensor) -> None:
        """Take a copy of a token's queries."""
        self._queries.append(query.clone())

    def mass(self, cache: KvCache, slots: npt.NDArray[np.int64]) -> Mass | None:
        """The attention mass of the tokens at `slots`: fp32 [n], of sum 1, the mean over queries,
        heads and layers. Each query counts as if it saw all of them. None without a query."""
        if not self._queries or not len(slots):
            return None
        queries = torch.stack(tuple(self._queries), dim=1)  # [layers, window, heads, head_dim]
        at = torch.from_numpy(slots)
        total = torch.zeros(len(slots))
        with torch.inference_mode():
            for layer, q in enumerate(queries):
                keys = cache.decode(cache.gather(layer, at)[0]).to(q)  # [n, kv_heads, dim]
                group = q.shape[1] // keys.shape[1]
                heads = q.unflatten(1, (-1, group))  # [window, kv_heads, group, dim]
                scores = torch.einsum("wkgd,nkd->wkgn", heads, keys) * q.shape[-1] ** -0.5
                total += scores.softmax(dim=-1).mean(dim=(0, 1, 2)).float()
        mass: Mass = (total / len(queries)).numpy()
        return mass
