"""Per-channel scales that keys are divided by before they are stored in 8 bits.

A few channels of Qwen2's keys have biases above a hundred. With one 8 bit scale per head, all other
channels would get steps of about one. Queries are multiplied by the same factors, so scores stay
the same; because the factors are powers of two, they stay the same bit for bit. The scales follow
from the weights alone: behind a norm, inputs are about 1, and a key channel is about as large as
its bias and the norm of its row.
"""

from __future__ import annotations

import torch
from torch import Tensor

DEVIATIONS = 3.0  # expected deviation of a channel from its bias, in standard deviations
LEAST_LOG2, MOST_LOG2 = -16, 16  # fp16 can represent factors of 2^16 either way


def key_scale(weight: Tensor, bias: Tensor | None, norm: Tensor, kv_heads: int) -> Tensor:
    """Scales as powers of two, fp32 [kv_heads, head_dim], equal in both halves of a head.

    `weight` [kv_heads * head_dim, hidden] and `bias` [kv_heads * head_dim]: the key projection;
    `norm` [hidden]: the norm in front of it. Two channels that RoPE rotates into each other share
    one scale, from the size of both.
    """
    if weight.is_meta:  # sizes are counted; torch imports its compiler to find that of a norm
        return torch.empty(kv_heads, len(weight) // kv_heads, device="meta")
    spread = DEVIATIONS * (weight.float() * norm.float()).norm(dim=1)
    size = torch.zeros_like(spread) if bias is None else bias.float()
    first, second = torch.stack((size, spread)).reshape(2, kv_heads, 2, -1).unbind(dim=2)
    pair = torch.hypot(first, second).sum(dim=0)  # [kv_heads, head_dim / 2]
    log2 = pair.clamp_min(torch.finfo(torch.float32).tiny).log2().round()
    return log2.clamp(LEAST_LOG2, MOST_LOG2).exp2().repeat(1, 2)
