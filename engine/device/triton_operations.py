"""`Operations` by Triton kernels, on a GPU or in Triton's interpreter.

Each is launched on the current stream and waits for nothing, so a step can be captured.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headstart.kernels.gpu import paged_attention as attention
from headstart.kernels.gpu.packed_matmul import packed_matmul
from headstart.kernels.gpu.packed_weight import PackedWeight
from headstart.kernels.gpu.pools import Pools
from headstart.kernels.gpu.rms_norm import rms_norm
from headstart.kernels.gpu.rope_write import rope_write
from headstart.kernels.gpu.silu_mul import silu_mul


class TritonOperations:
    """The kernels of `headstart.kernels.gpu`."""

    def rms_norm(
        self, x: Tensor, weight: Tensor, eps: float, residual: Tensor
    ) -> tuple[Tensor, Tensor]:
        normed, added = rms_norm(x, weight, eps, residual)
        assert added is not None
        return normed, added

    def rope_write(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        positions: Tensor,
        turns: Tensor,
        slots: Tensor,
        pools: Pools,
        sections: Sequence[int],
    ) -> Tensor:
        return rope_write(q, k, v, positions, turns, slots, pools, sections=sections)

    def paged_attention(
        self,
        q: Tensor,
        pools: Pools,
        tables: Tensor,
        starts: Tensor,
        contexts: Tensor,
        scale: float,
        longest: int,
        out: Tensor,
    ) -> None:
        where = (tables, starts, contexts, scale)
        stored = q.dtype if pools.coded else pools.k.dtype
        if stored == q.dtype:
            attention.paged_attention(q, pools, *where, longest=longest, out=out)
        else:
            out.copy_(attention.paged_attention(q.to(stored), pools, *where, longest=longest))

    def silu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        return silu_mul(gate, up)

    def packed_matmul(
        self, x: Tensor, weight: PackedWeight, bias: Tensor | None, dtype: torch.dtype | None
    ) -> Tensor:
        return packed_matmul(x, weight, bias, dtype=dtype)
