"""The operations that a decoder on a device is made of, and their plain torch form.

`TorchOperations` runs anywhere and in any float type, fp64 too; it waits for sizes and loops over
sequences, so it is for tests on a CPU. `triton_operations` has those for a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.kernels.gpu import reference
from headstart.kernels.gpu.packed_weight import PackedWeight
from headstart.kernels.gpu.pools import Pools, join
from headstart.kernels.paged_attention.storage import gather


class Operations(Protocol):
    """Arguments and shapes are those of the functions of the same names in
    `headstart.kernels.gpu`."""

    def rms_norm(
        self, x: Tensor, weight: Tensor, eps: float, residual: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The norm of x + residual in x's type, and that sum in residual's."""
        ...

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
        """q rotated; k rotated and v go to `slots` of `pools`, negative ones nowhere."""
        ...

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
        """Write the attention of `q` to `out`, of its shape and type."""
        ...

    def silu_mul(self, gate: Tensor, up: Tensor) -> Tensor: ...

    def packed_matmul(
        self, x: Tensor, weight: PackedWeight, bias: Tensor | None, dtype: torch.dtype | None
    ) -> Tensor: ...


class TorchOperations:
    """`Operations` in plain torch, in the type of what is given."""

    def rms_norm(
        self, x: Tensor, weight: Tensor, eps: float, residual: Tensor
    ) -> tuple[Tensor, Tensor]:
        added = residual + x
        mean = added.square().mean(dim=-1, keepdim=True)
        return (added * torch.rsqrt(mean + eps) * weight).to(x.dtype), added

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
        if sections:
            axis = torch.repeat_interleave(torch.arange(3), torch.tensor(list(sections)))
            phase = positions[axis].T * turns
        else:
            phase = positions[:, None] * turns  # wraps at a whole turn, as in the kernel
        angle = phase.double() * (math.tau * 2.0**-64)
        reference.write(pools.k, pools.k_scale, reference.rope(k, angle), slots)
        reference.write(pools.v, pools.v_scale, v, slots)
        return reference.rope(q, angle)

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
        k_pool, v_pool = join(pools.k, pools.k_scale), join(pools.v, pools.v_scale)
        bounds = starts.tolist()
        for seq, context in enumerate(contexts.tolist()):
            rows = slice(bounds[seq], bounds[seq + 1])
            if not context:  # a row that fills a batch up
                out[rows] = 0
                continue
            ids = tables[seq, : -(-context // pools.k.shape[2])].long()
            k, v = (gather(pool, ids, context).to(q.dtype) for pool in (k_pool, v_pool))
            count = rows.stop - rows.start
            seen = torch.arange(context) < torch.arange(context - count + 1, context + 1)[:, None]
            heads = F.scaled_dot_product_attention(
                q[rows].transpose(0, 1)[None],
                k[None],
                v[None],
                attn_mask=None if count == 1 else seen,
                scale=scale,
                enable_gqa=True,
            )
            out[rows] = heads[0].transpose(0, 1)

    def silu_mul(self, gate: Tensor, up: Tensor) -> Tensor:
        return reference.silu_mul(gate, up)

    def packed_matmul(
        self, x: Tensor, weight: PackedWeight, bias: Tensor | None, dtype: torch.dtype | None
    ) -> Tensor:
        return reference.packed_matmul(x, weight, bias).to(dtype or x.dtype)
