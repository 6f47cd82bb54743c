"""A small random decoder and a step of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.kernels.decoder_layers import DecoderLayers, Layer, LayerSizes, Rows
from headstart.kernels.paged_attention.reference import paged_attention
from headstart.kernels.paged_attention.storage import encode
from headstart.kernels.qlinear import QWeight, dequantize, pack
from headstart.kernels.rms_norm.reference import rms_norm
from headstart.kernels.rope.reference import rope
from headstart.kernels.silu_mul.reference import silu_mul
from tests.kernels.qlinear.blocks import random_blocks

SIZES = LayerSizes(hidden=96, ffn=256, heads=6, kv_heads=2, head_dim=16, rms_eps=1e-6)
BLOCKS, BLOCK = 12, 4


def weight(kind: str, rows: int, cols: int, seed: int) -> QWeight:
    """A random packed weight."""
    return pack(kind, random_blocks(kind, rows, cols, seed), rows, cols)


def scale_of_keys(seed: int) -> Tensor:
    """Random powers of two, the same in both halves of a head."""
    powers = torch.randint(-2, 1, (2, 8), generator=torch.Generator().manual_seed(seed))
    return powers.float().exp2().repeat(1, 2)


def layers(count: int = 3) -> list[Layer]:
    """Layers of mixed kinds, every second one with biases on q and k, all but the first with a
    scale of the keys."""
    made = []
    for i in range(count):
        biases = (torch.randn(96), torch.randn(32), None) if i % 2 else (None, None, None)
        made.append(
            Layer(
                attn_norm=torch.rand(96) + 0.5,
                qkv=(
                    weight("Q5_0", 96, 96, i),
                    weight("Q4_1", 32, 96, i + 1),
                    weight("Q8_0", 32, 96, i + 2),
                ),
                qkv_bias=biases,
                attn_out=weight("Q5_0", 96, 96, i + 3),
                ffn_norm=torch.rand(96) + 0.5,
                gate_up=(weight("Q4_0", 256, 96, i + 4), weight("Q5_0", 256, 96, i + 5)),
                down=weight("Q6_K", 96, 256, i + 6),
                key_scale=scale_of_keys(i) if i else None,
            )
        )
    return made


@dataclass(frozen=True)
class Step:
    """Seven rows of two sequences, and pools that hold what came before."""

    x: Tensor
    rows: Rows
    k_pools: list[Tensor]
    v_pools: list[Tensor]


def step(count: int = 3, dtype: torch.dtype = torch.float32, wanted: Tensor | None = None) -> Step:
    """Sequence 0 has 9 tokens before its 4 rows, sequence 1 none before its 3."""
    tables = torch.tensor([[3, 0, 7, 9], [5, -1, -1, -1]], dtype=torch.int32)
    seqs = torch.tensor([0, 0, 0, 0, 1, 1, 1], dtype=torch.int32)
    positions = torch.tensor([9, 10, 11, 12, 0, 1, 2])
    blocks = tables[seqs.long(), positions // BLOCK].long()
    pool = (BLOCKS, SIZES.kv_heads, BLOCK, SIZES.head_dim)
    angles = torch.rand(7, SIZES.head_dim // 2) * 6
    rows = Rows(
        cos=angles.cos(),
        sin=angles.sin(),
        slots=blocks * BLOCK + positions % BLOCK,
        tables=tables,
        seq_of_row=seqs,
        context_of_row=(positions + 1).int(),
        wanted=wanted,
    )
    pools = [encode(torch.randn(pool), dtype) for _ in range(2 * count)]
    return Step(torch.randn(7, SIZES.hidden), rows, pools[:count], pools[count:])


def exact(layers: Sequence[Layer], at: Step) -> tuple[Tensor, list[Tensor]]:
    """What the layers give, and the pools afterwards, computed in fp64 on the unpacked weights;
    pools of fp32 only."""
    x, rows, scale = at.x.double(), at.rows, SIZES.head_dim**-0.5
    k_pools, v_pools = ([pool.double() for pool in part] for part in (at.k_pools, at.v_pools))

    def linear(rows: Tensor, weight: QWeight, bias: Tensor | None = None) -> Tensor:
        product = rows @ dequantize(weight, backend="reference").double().T
        return product if bias is None else product + bias.double()

    for layer, k_pool, v_pool in zip(layers, k_pools, v_pools, strict=True):
        normed = rms_norm(x, layer.attn_norm.double(), SIZES.rms_eps)
        q, k, v = (linear(normed, w, b) for w, b in zip(layer.qkv, layer.qkv_bias, strict=True))
        q, k, v = (part.view(len(x), -1, SIZES.head_dim) for part in (q, k, v))
        q, k = (rope(part, rows.cos.double(), rows.sin.double()) for part in (q, k))
        if layer.key_scale is not None:
            q = q * layer.key_scale.repeat_interleave(SIZES.heads // SIZES.kv_heads, dim=0)
            k = k / layer.key_scale
        blocks, offsets = rows.slots // BLOCK, rows.slots % BLOCK
        k_pool[blocks, :, offsets], v_pool[blocks, :, offsets] = k, v
        where = (rows.tables, rows.seq_of_row, rows.context_of_row)
        x = x + linear(paged_attention(q, k_pool, v_pool, *where, scale).flatten(1), layer.attn_out)
        normed = rms_norm(x, layer.ffn_norm.double(), SIZES.rms_eps)
        gate, up = (linear(normed, weight) for weight in layer.gate_up)
        x = x + linear(silu_mul(gate, up), layer.down)
    return x if rows.wanted is None else x[rows.wanted], k_pools + v_pools


def run(model: DecoderLayers, at: Step, backend: str | None) -> tuple[Tensor, list[Tensor]]:
    """The output, and the pools afterwards; `at` stays as it was."""
    k_pools, v_pools = ([pool.clone() for pool in part] for part in (at.k_pools, at.v_pools))
    out = model(at.x, at.rows, k_pools, v_pools, backend=backend)
    return out, k_pools + v_pools
