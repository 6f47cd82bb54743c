"""Weights in int8: a quarter of fp32's bytes, which are the time of a decoding step.

Format Q8_0, as in GGUF: groups of 32 with an fp16 scale each, multiplied by the kernel that serves
the LLM. Codes take seven of the eight bits: then the kernel adds twice as many products before it
widens them, by which an encoder's many rows gain. Activations are quantised too, row by row, so a
row's result depends on that row alone and a guess checked together with others is checked as if
alone.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headstart.kernels.qlinear import QWeight, pack, qlinear

PACKED_KIND = "Q8_0"
GROUP = 32
_BLOCK_BYTES = 2 + GROUP
_STRIPE_WEIGHTS = 1 << 17  # quantised at a time, in memory that stays in the processor's cache
_MOST = 63  # what `headstart.kernels.qlinear` calls narrow


def pack_q8_0(weight: Tensor) -> QWeight:
    """Quantise [N, K] of any floating type, K a multiple of 32."""
    count, width = weight.shape
    raw = torch.empty((count, width // GROUP, _BLOCK_BYTES), dtype=torch.uint8)
    stripe = max(1, _STRIPE_WEIGHTS // width)
    for at in range(0, count, stripe):
        part = weight[at : at + stripe]
        raw[at : at + stripe] = _blocks(part).view(len(part), -1, _BLOCK_BYTES)
    return pack(PACKED_KIND, raw.numpy(), count, width)


def _blocks(weight: Tensor) -> Tensor:
    """Q8_0 blocks uint8 [groups, 34]: an fp16 scale and 32 integers."""
    groups = weight.float().reshape(-1, GROUP)
    low, high = groups.aminmax(dim=1)
    scales = (torch.maximum(high, -low) / _MOST).half()
    inverse = torch.where(scales > 0, scales.float().reciprocal(), 0.0)
    steps = (groups * inverse[:, None]).round_().clamp_(-_MOST, _MOST).to(torch.int8)
    return torch.cat((scales[:, None].view(torch.uint8), steps.view(torch.uint8)), dim=1)


class PackedLinear(nn.Module):
    """`nn.Linear` with its weight packed; `weight` is of its shape."""

    def __init__(self, weight: QWeight, bias: Tensor | None) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias

    def forward(self, x: Tensor) -> Tensor:
        """fp32 [n, K] to fp32 [n, N]."""
        return qlinear(x, self.weight, self.bias)


def pack_linears(module: nn.Module, packed: Callable[[str, nn.Linear], QWeight], at: str) -> None:
    """Replace every `nn.Linear` inside `module`, whose own name is `at`. `packed`: the weight of
    one by its name; the module's may be on the device "meta"."""
    for name, child in module.named_children():
        where = f"{at}.{name}"
        if isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(packed(where, child), child.bias))
        else:
            pack_linears(child, packed, where)
