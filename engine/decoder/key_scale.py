"""What keys are divided by before they are stored, so that no channel drowns the others.

Qwen2's keys have biases of a hundred and more in a few channels. Eight bits for a whole head would
give the others steps of one. Queries are multiplied by the same numbers, so scores stay as they
are, and as they are powers of two, so does every bit of them. Known from the weights alone: behind
a norm the input's numbers are about 1, and a channel of keys is as large as its bias and its row.
"""

from __future__ import annotations

import torch
from torch import Tensor

DEVIATIONS = 3.0  # how far from its bias a channel is expected to go
LEAST_LOG2, MOST_LOG2 = -16, 16  # whatever the weights say, fp16 keeps a factor of 2^16 either way


def key_scale(weight: Tensor, bias: Tensor | None, norm: Tensor, kv_heads: int) -> Tensor:
    """Powers of two, fp32 [kv_heads, head_dim], the same in both halves of a head.

    weight [kv_heads * head_dim, hidden] and bias of the keys' projection; norm [hidden] in front.
    A pair of channels that are turned against each other is as large as both together.
    """
    spread = DEVIATIONS * (weight.float() * norm.float()).norm(dim=1)
    size = torch.zeros_like(spread) if bias is None else bias.float()
    first, second = torch.stack((size, spread)).reshape(2, kv_heads, 2, -1).unbind(dim=2)
    pair = torch.hypot(first, second).sum(dim=0)  # [kv_heads, head_dim / 2]
    log2 = pair.clamp_min(torch.finfo(torch.float32).tiny).log2().round()
    return log2.clamp(LEAST_LOG2, MOST_LOG2).exp2().repeat(1, 2)
