"""Paged K/V on a GPU: pools of codes, with their scales in a tensor of their own.

A pool is [blocks, kv_heads, block_size, D] of fp32, fp16, bf16, int8 or fp8 (e4m3); int8 and fp8
have fp32 scales [blocks, kv_heads, block_size], one a row. Codes and scales are those of
paged_attention/storage.py, where a row's scale lies behind its codes: there a row of 128 codes
takes 132 bytes, which no 16-byte load of a GPU is aligned to. `split` and `join` convert.

A slot is `block * block_size + offset`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.kernels.errors import KernelInputError
from headstart.kernels.gpu.launch import expect, expect_contiguous
from headstart.kernels.paged_attention.storage import LARGEST, head_dim_of

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
STORED = (*FLOATS, *LARGEST)


@dataclass(frozen=True)
class Pools:
    """K and V of one layer; scales are None unless the codes are int8 or fp8."""

    k: Tensor
    v: Tensor
    k_scale: Tensor | None = None
    v_scale: Tensor | None = None

    @property
    def coded(self) -> bool:
        return self.k.dtype in LARGEST

    def check(self, head_dim: int) -> None:
        """Raise KernelInputError unless the four tensors fit each other."""
        expect(self.k, "k", (None, None, None, head_dim), *STORED)
        expect(self.v, "v", tuple(self.k.shape), self.k.dtype)
        expect_contiguous(k=self.k, v=self.v, k_scale=self.k_scale, v_scale=self.v_scale)
        if 0 in self.k.shape[1:]:
            raise KernelInputError(f"k: expected heads and slots, got {list(self.k.shape)}")
        for name, scale in (("k_scale", self.k_scale), ("v_scale", self.v_scale)):
            if self.coded and scale is None:
                raise KernelInputError(f"{name}: expected scales beside int8 or fp8 codes")
            if scale is not None:
                expect(scale, name, tuple(self.k.shape[:3]), torch.float32)


def split(pool: Tensor) -> tuple[Tensor, Tensor | None]:
    """A pool as the CPU has it -> codes and scales, contiguous; floats are given back as is."""
    if pool.dtype not in LARGEST:
        return pool, None
    head_dim, raw = head_dim_of(pool), pool.view(torch.int8)
    scale = raw[..., head_dim:].contiguous().view(torch.float32)[..., 0]
    return raw[..., :head_dim].contiguous().view(pool.dtype), scale.contiguous()


def join(codes: Tensor, scale: Tensor | None) -> Tensor:
    """The inverse of `split`."""
    if scale is None:
        return codes
    parts = (codes.view(torch.int8), scale[..., None].contiguous().view(torch.int8))
    return torch.cat(parts, dim=-1).view(codes.dtype)


def as_bytes(codes: Tensor) -> Tensor:
    """What a kernel is given: fp8 as bytes, which it decodes itself on every chip."""
    return codes.view(torch.uint8) if codes.dtype == torch.float8_e4m3fn else codes
