"""Whisper's layers in plain torch, in any float type and on any device, for several sounds at once.

All parts of a batch are filled up with zeros to the length of its longest, and nothing attends to
what was filled up. Products are in the weights' type; the sum through the layers, norms, and the
attention that is looked at are fp32. Nothing is read back, so nothing waits for a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headstart.engine.asr.whisper.caches import CrossCache, EncodedSound, Frozen, Text, TextCache
from headstart.engine.asr.whisper.modules import DecoderLayer, EncoderLayer, Mlp
from headstart.engine.asr.whisper.packed import PackedLinear

Watched = tuple[tuple[int, int], ...]  # (layer, head)


def onto(x: Tensor, device: torch.device) -> Tensor:
    """x on `device`; from the host to a GPU by way of pinned memory, without waiting."""
    if device.type == "cuda" and x.device.type == "cpu":
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)


def product(linear: nn.Module, x: Tensor) -> Tensor:
    """x [..., K] to [..., N], in the weights' type; packed ones take and give fp32."""
    if isinstance(linear, PackedLinear):
        return linear(x.flatten(0, -2)).unflatten(0, x.shape[:-1])  # type: ignore[no-any-return]
    assert isinstance(linear, nn.Linear)
    return F.linear(x.to(linear.weight.dtype), linear.weight, linear.bias)


def filled_up(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """[len(parts), ...]: `parts` of one shape but for `dim`, with zeros behind the shorter ones. Of
    a single one a view."""
    if len(parts) == 1:
        return parts[0][None]
    longest = max(part.shape[dim] for part in parts)
    if all(part.shape[dim] == longest for part in parts):
        return torch.stack(list(parts))
    shape = list(parts[0].shape)
    shape[dim] = longest
    out = parts[0].new_zeros(len(parts), *shape)
    for whole, part in zip(out, parts, strict=True):
        whole.narrow(dim, 0, part.shape[dim]).copy_(part)
    return out


def encode(
    layers: Sequence[EncoderLayer], rows: Sequence[Tensor], sounds: Sequence[EncodedSound]
) -> tuple[list[Tensor], list[tuple[Tensor, Tensor] | None]]:
    """Each sound's new positions [T, D], and keys and values [layers, heads, n, d] of those of them
    that shall be frozen; None: of none."""
    counts = [len(part) for part in rows]
    known = _known(sounds)
    seen = _seen([sound.known for sound in sounds], counts, rows[0].device)
    most = max(sound.keep - sound.frozen.positions for sound in sounds)
    x, kept = filled_up(rows), []
    for i, layer in enumerate(layers):
        qkv = product(layer.attention.qkv, layer.attention_norm(x))
        q, k, v = (_heads(part, layer.attention.heads) for part in qkv.chunk(3, dim=-1))
        if most > 0:
            kept.append((k[:, :, :most], v[:, :, :most]))
        if known is not None:
            k = torch.cat((known[0][:, i].to(k.dtype), k), dim=2)
            v = torch.cat((known[1][:, i].to(v.dtype), v), dim=2)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = x + product(layer.attention.out, _joined(mixed))
        x = x + _mlp(layer.mlp, layer.mlp_norm(x))
    new: list[tuple[Tensor, Tensor] | None] = [None] * len(sounds)
    if kept:
        keys, values = (torch.stack(list(parts), dim=1) for parts in zip(*kept, strict=True))
        for place, sound in enumerate(sounds):
            count = sound.keep - sound.frozen.positions
            if count:
                new[place] = keys[place, :, :, :count], values[place, :, :, :count]
    return [part[:count] for part, count in zip(x, counts, strict=True)], new


def _known(sounds: Sequence[EncodedSound]) -> tuple[Tensor, Tensor] | None:
    """Keys and values [sounds, layers, heads, positions, d] that are not encoded anew: of what lies
    beyond a sound, then of what is frozen of it; in which order does not matter."""
    found: list[list[Frozen]] = [
        [part for part in (sound.beyond, sound.frozen) if part is not None and part.positions]
        for sound in sounds
    ]
    if not any(found):
        return None
    some = next(part for parts in found for part in parts)
    none = some.keys[:, :, :0], some.values[:, :, :0]
    each = [[(part.keys, part.values) for part in parts] or [none] for parts in found]
    keys = filled_up([_along([part[0] for part in parts]) for parts in each], dim=2)
    values = filled_up([_along([part[1] for part in parts]) for parts in each], dim=2)
    return keys, values


def _along(parts: Sequence[Tensor]) -> Tensor:
    """One behind the other, by position."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=2)


def _seen(known: Sequence[int], counts: Sequence[int], device: torch.device) -> Tensor | None:
    """bool [sounds, 1, 1, keys]: which are of the sound; None: all."""
    if len(set(known)) == 1 and len(set(counts)) == 1:
        return None
    mask = torch.cat((_within(known), _within(counts)), dim=1)
    return onto(mask[:, None, None], device)


def _within(counts: Sequence[int]) -> Tensor:
    """bool [len(counts), the largest of them]."""
    return torch.arange(max(counts)) < torch.tensor(counts)[:, None]


@dataclass(frozen=True, slots=True)
class HeardTogether:
    """Keys and values of several sounds [sounds, layers, heads, T, d] for the decoder. `seen` bool
    [sounds, 1, 1, T]: which are of the sound; None: all."""

    keys: Tensor
    values: Tensor
    seen: Tensor | None

    @classmethod
    def of(cls, sounds: Sequence[CrossCache]) -> HeardTogether:
        counts, device = [sound.positions for sound in sounds], sounds[0].keys.device
        wholes = [sound.whole() for sound in sounds]
        keys, values = (filled_up(parts, dim=2) for parts in zip(*wholes, strict=True))
        mask = None if len(set(counts)) == 1 else onto(_within(counts)[:, None, None], device)
        return cls(keys, values, mask)

    def at(self, places: Sequence[int]) -> HeardTogether:
        """The sounds at these places, which may be repeated."""
        if list(places) == list(range(len(self.keys))):
            return self
        picked = onto(torch.tensor(places), self.keys.device)
        seen = None if self.seen is None else self.seen[picked]
        return HeardTogether(self.keys[picked], self.values[picked], seen)


def read(
    layers: Sequence[DecoderLayer],
    rows: Sequence[Tensor],
    texts: Sequence[Text],
    heard: HeardTogether,
) -> list[Tensor]:
    """Each text's rows [n, D] behind the layers. Writes what is watched, and their caches, but not
    how long these are."""
    counts, caches = [len(part) for part in rows], [text.cache for text in texts]
    watched: Watched = max((text.watched for text in texts), key=len)
    assert all(text.watched in ((), watched) for text in texts), "one choice of heads a batch"
    before, seen = _before(caches, counts, rows[0].device)
    x = filled_up(rows)
    new, looks = [], {}
    for i, layer in enumerate(layers):
        qkv = product(layer.self_attention.qkv, layer.self_norm(x))
        q, k, v = (_heads(part, layer.self_attention.heads) for part in qkv.chunk(3, dim=-1))
        new.append((k, v))
        if before is not None:
            k = torch.cat((before[0][:, i].to(k.dtype), k), dim=2)
            v = torch.cat((before[1][:, i].to(v.dtype), v), dim=2)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = x + product(layer.self_attention.out, _joined(mixed))
        q = _heads(
            product(layer.cross_attention.q, layer.cross_norm(x)), layer.cross_attention.heads
        )
        keys, values = heard.keys[:, i].to(q.dtype), heard.values[:, i].to(q.dtype)
        for at, head in watched:
            if at == i:
                looks[at, head] = _attention(q[:, head], keys[:, head], heard.seen)
        mixed = F.scaled_dot_product_attention(q, keys, values, attn_mask=heard.seen)
        x = x + product(layer.cross_attention.out, _joined(mixed))
        x = x + _mlp(layer.mlp, layer.mlp_norm(x))
    keys, values = (torch.stack(list(parts), dim=1) for parts in zip(*new, strict=True))
    for place, (cache, count) in enumerate(zip(caches, counts, strict=True)):
        cache.put(keys[place, :, :, :count], values[place, :, :, :count])
    _take_down(texts, counts, watched, looks)
    return [part[:count] for part, count in zip(x, counts, strict=True)]


def _before(
    caches: Sequence[TextCache], counts: Sequence[int], device: torch.device
) -> tuple[tuple[Tensor, Tensor] | None, Tensor | None]:
    """Keys and values [texts, layers, heads, n, d] of the tokens before; and which keys each row
    sees, bool [texts, 1, rows, keys]: those before, its own and its text's new ones up to it."""
    lengths = [cache.length for cache in caches]
    longest, rows = max(lengths), max(counts)
    seen = None
    if rows > 1 or len(set(lengths)) > 1:
        old = torch.arange(longest) < torch.tensor(lengths)[:, None]
        new = torch.ones(rows, rows, dtype=torch.bool).tril().expand(len(lengths), -1, -1)
        mask = torch.cat((old[:, None].expand(-1, rows, -1), new), dim=2)
        seen = onto(mask[:, None], device)
    if not longest:
        return None, seen
    keys = [cache.keys[:, :, :n] for cache, n in zip(caches, lengths, strict=True)]
    values = [cache.values[:, :, :n] for cache, n in zip(caches, lengths, strict=True)]
    return (filled_up(keys, dim=2), filled_up(values, dim=2)), seen


def _take_down(
    texts: Sequence[Text],
    counts: Sequence[int],
    watched: Watched,
    looks: dict[tuple[int, int], Tensor],
) -> None:
    """What the watched heads look at, to each text that asked."""
    if not watched:
        return
    total = looks[watched[0]]
    for pair in watched[1:]:
        total = total + looks[pair]
    for place, (text, count) in enumerate(zip(texts, counts, strict=True)):
        if text.watched:
            end = text.sound.positions
            text.seen = {pair: seen[place, :count, :end] for pair, seen in looks.items()}
            text.total = total[place, :count, :end]


def _attention(q: Tensor, keys: Tensor, seen: Tensor | None) -> Tensor:
    """Of one head: q [texts, n, d], keys [texts, T, d] to fp32 [texts, n, T]."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores: Tensor = q.to(wide) @ keys.to(wide).transpose(1, 2) / q.shape[-1] ** 0.5
    if seen is not None:
        scores = scores.masked_fill(~seen[:, 0], -torch.inf)
    return scores.softmax(dim=-1)


def _mlp(mlp: Mlp, x: Tensor) -> Tensor:
    return product(mlp.down, F.gelu(product(mlp.up, x)))


def _heads(x: Tensor, heads: int) -> Tensor:
    """[n, T, D] to [n, heads, T, d]."""
    return torch.unflatten(x, -1, (heads, -1)).transpose(1, 2)


def _joined(x: Tensor) -> Tensor:
    """[n, heads, T, d] to [n, T, D]."""
    return x.transpose(1, 2).flatten(2)
