"""Pooling by learned queries: a fixed number of them attends to all tokens of a picture, or of
several pictures in sequence (a resampler, as in Flamingo and Qwen-VL).

    keys    = norm_kv(input x)                               [tokens, width]
    queries = norm_q(queries)                                [queries, width]
    out     = output norm_out(attention(queries, keys + places + times, keys))

`places` are fixed sines and cosines of a token's row and column, `times` one learned vector for
each unit of a group. Without `input` and `output` the model's width is the pooler's.

Tensors, in the checkpoint under "pooler." or in a file of their own, `pooler.safetensors`, beside
it: queries, norm_q, norm_kv, norm_out (weight and bias), attention.in_proj_weight, .in_proj_bias,
.out_proj (weight and bias; as in torch's MultiheadAttention), and optionally input.weight, times,
output.weight, output.bias. `pooler.json`, or `pooler_config` in config.json, has
`num_attention_heads`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.engine.decoder.layers import LayerNorm, Linear, attend, compute_dtype
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.engine.models.perception.audio_tower import layer_norm
from headstart.engine.models.perception.pooling import Embedded, SimilarityMerging, on_square

EPS = 1e-6
_SLOWEST_RATE = 10_000.0


@dataclass(frozen=True, slots=True)
class PoolerSizes:
    """`hidden`: of the language model. `frames`: units that it pools together."""

    hidden: int
    width: int
    queries: int
    heads: int
    frames: int = 1


class QueryPooling:
    """The pooler (a `Pooling`)."""

    def __init__(self, tensors: Tensors, sizes: PoolerSizes) -> None:
        """Raises `BadWeights` naming what is missing or misshapen."""
        self.sizes, width = sizes, sizes.width
        self._input = self._times = self._output = None
        if sizes.width != sizes.hidden or tensors.has("input.weight"):
            self._input = Linear(tensors.take("input.weight", width, sizes.hidden))
            self._output = _linear(tensors, "output", sizes.hidden, width)
        if sizes.frames > 1:
            self._times = _wide(tensors.take("times", sizes.frames, width))
        self._norm_kv: LayerNorm = layer_norm(tensors, "norm_kv", width, EPS)
        self._norm_out: LayerNorm = layer_norm(tensors, "norm_out", width, EPS)
        norm_q = layer_norm(tensors, "norm_q", width, EPS)
        weights = tensors.take("attention.in_proj_weight", 3 * width, width).chunk(3)
        biases = tensors.take("attention.in_proj_bias", 3 * width).chunk(3)
        q, self._k, self._v = (Linear(w, b) for w, b in zip(weights, biases, strict=True))
        self._out = _linear(tensors, "attention.out_proj", width, width)
        self._q = q(norm_q(_wide(tensors.take("queries", sizes.queries, width))))

    def pool(self, units: Sequence[Embedded], max_tokens: int) -> Embedded:
        """As many tokens as there are queries; if that is too many, similar ones are merged."""
        keys, values = [], []
        for number, unit in enumerate(units):
            x = unit.vectors if self._input is None else self._input(unit.vectors)
            normed = self._norm_kv(x)
            placed = normed + sines(unit.cells, self.sizes.width, normed.dtype)
            keys.append(placed if self._times is None else placed + self._times[number])
            values.append(normed)
        q, k, v = self._q, self._k(torch.cat(keys)), self._v(torch.cat(values))
        split = (torch.unflatten(x, 1, (self.sizes.heads, -1))[None] for x in (q, k, v))
        x = self._norm_out(self._out(attend(*split)[0]))
        pooled = on_square(x if self._output is None else self._output(x))
        if len(pooled.vectors) <= max_tokens:
            return pooled
        return SimilarityMerging().pool([pooled], max_tokens)


def sines(cells: Sequence[tuple[int, int]], width: int, dtype: torch.dtype) -> Tensor:
    """[cells, width]: for row and column, each a quarter sines and a quarter cosines."""
    quarter = width // 4
    rates = _SLOWEST_RATE ** -(torch.arange(quarter, dtype=torch.float64) / quarter)
    angles = torch.tensor(cells, dtype=torch.float64)[:, :, None] * rates  # [cells, 2, quarter]
    return torch.cat([angles.sin(), angles.cos()], dim=2).flatten(1).to(dtype)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(compute_dtype(tensor.dtype))


def _linear(tensors: Tensors, name: str, rows: int, cols: int) -> Linear:
    return Linear(tensors.take(f"{name}.weight", rows, cols), tensors.take(f"{name}.bias", rows))
