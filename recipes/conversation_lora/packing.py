"""Packing of dialogues into one row; each attends to the system prompt and itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.recipes.conversation_lora.tokens import Example, Prompt


@dataclass(frozen=True, slots=True)
class Pack:
    """Indices of examples that share a system prompt."""

    prompt: Prompt
    members: tuple[int, ...]


def packs(examples: Sequence[Example], most_tokens: int, seed: int) -> list[Pack]:
    """All examples once, in an order drawn from `seed`, with at most `most_tokens` per pack (or one
    longer example)."""
    draw = random.Random(seed)
    order = list(range(len(examples)))
    draw.shuffle(order)
    out: list[Pack] = []
    for prompt in Prompt:
        open_pack: list[int] = []
        size = 0
        for index in order:
            if examples[index].prompt is not prompt:
                continue
            length = len(examples[index].ids)
            if open_pack and size + length > most_tokens:
                out.append(Pack(prompt, tuple(open_pack)))
                open_pack, size = [], 0
            open_pack.append(index)
            size += length
        if open_pack:
            out.append(Pack(prompt, tuple(open_pack)))
    draw.shuffle(out)
    return out


def positions(prefix: int, lengths: Sequence[int]) -> Tensor:
    """Positions int64 [1, prefix + sum(lengths)]; each example continues the system prompt."""
    parts = [torch.arange(prefix), *(prefix + torch.arange(n) for n in lengths)]
    return torch.cat(parts)[None]


def mask(prefix: int, lengths: Sequence[int]) -> Tensor:
    """Causal mask bool [1, 1, n, n]: a row attends to the prompt and to its own example."""
    owner = torch.cat([torch.full((n,), i) for i, n in enumerate((prefix, *lengths))])
    own = owner[:, None] == owner[None, :]
    return (torch.tril(own | (owner == 0)[None, :]))[None, None]
