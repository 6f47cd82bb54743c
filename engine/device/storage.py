"""Paged K/V on a device: codes, and their scales in a tensor of their own.

Rows that go in and out are in storage form (`headstart.kernels.paged_attention.storage`), as those
of the cache on the CPU: what is offloaded to the host has the same bytes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headstart.engine.errors import BadSettings
from headstart.engine.kvcache.storage import KvCache
from headstart.kernels.gpu.pools import Pools, join, split
from headstart.kernels.paged_attention.storage import LARGEST


class DeviceKvCache(KvCache):
    """`KvCache` whose pools lie on `device`; `pools` has those of each layer for the kernels.

    On a GPU all of it is taken at once. Raises `BadSettings` if that is more than is free.
    """

    def __init__(self, *, device: torch.device, kv_dtype: str = "fp32", **sizes: Any) -> None:
        """`sizes`: as of `KvCache`. K and V in fp32 are bf16 on a GPU: they are computed in bf16,
        and fp32 would hold no more."""
        self.device = device
        self.pools: list[Pools] = []
        rounded = device.type == "cuda" and kv_dtype == "fp32"
        super().__init__(kv_dtype="bf16" if rounded else kv_dtype, **sizes)

    def _allocate(self, kv_heads: int) -> None:
        rows = (self.layers, 2, self.num_blocks, kv_heads, self.block_size)
        try:
            self._codes = torch.empty((*rows, self._head_dim), dtype=self._raw, device=self.device)
            self._scales = (
                torch.empty(rows, dtype=torch.float32, device=self.device)
                if self.is_coded
                else None
            )
        except torch.OutOfMemoryError:
            expected = f"what is free on {self.device}"
            raise BadSettings("kv_pool_bytes", expected, self.pool_bytes) from None
        codes, scales = self._codes.view(self._dtype), self._scales
        for i in range(self.layers):
            k_scale, v_scale = (None, None) if scales is None else (scales[i, 0], scales[i, 1])
            self.pools.append(Pools(codes[i, 0], codes[i, 1], k_scale, v_scale))
        self.k_pools += [pools.k for pools in self.pools]
        self.v_pools += [pools.v for pools in self.pools]

    @property
    def is_coded(self) -> bool:
        """Whether K and V are codes of a byte, with scales."""
        return self._dtype in LARGEST

    def copy_block(self, source: int, target: int) -> None:
        for part in self._parts:
            part[:, :, target] = part[:, :, source]

    def save_block(self, block: int, num_tokens: int) -> Tensor:
        """A copy on the host, as `KvCache` would give it."""
        parts = (part[:, :, block, :, :num_tokens] for part in self._parts)
        return self._join(*parts).contiguous().cpu()

    def load_block(self, block: int, saved: Tensor) -> None:
        rows = saved.to(self.device)
        for part, stored in zip(self._parts, self._split(rows), strict=True):
            part[:, :, block, :, : saved.shape[3]] = stored

    def gather(self, layer: int, slots: Tensor) -> Tensor:
        at = slots.to(self.device)
        blocks, offsets = at // self.block_size, at % self.block_size
        return self._join(*(part[layer][:, blocks, :, offsets] for part in self._parts)).transpose(
            0, 1
        )

    def scatter(self, layer: int, slots: Tensor, stored: Tensor) -> None:
        at = slots.to(self.device)
        blocks, offsets = at // self.block_size, at % self.block_size
        for part, rows in zip(self._parts, self._split(stored.transpose(0, 1)), strict=True):
            part[layer][:, blocks, :, offsets] = rows

    def rotate_keys(self, sources: Tensor, targets: Tensor, cos: Tensor, sin: Tensor) -> None:
        super().rotate_keys(sources, targets, cos.to(self.device), sin.to(self.device))

    def fill(self, value: float) -> None:
        row = self.encode(torch.full((self._head_dim,), value, device=self.device))
        for part, stored in zip(self._parts, self._split(row), strict=True):
            part.copy_(stored)

    @property
    def _parts(self) -> list[Tensor]:
        return [self._codes] if self._scales is None else [self._codes, self._scales]

    def _join(self, codes: Tensor, scales: Tensor | None = None) -> Tensor:
        """Codes [..., head_dim] and scales [...] -> rows in storage form."""
        return join(codes, None if scales is None else scales.contiguous()).view(self._raw)

    def _split(self, stored: Tensor) -> list[Tensor]:
        """The inverse of `_join`."""
        codes, scales = split(stored.contiguous().view(self._dtype))
        return [codes.view(self._raw)] if scales is None else [codes.view(self._raw), scales]
