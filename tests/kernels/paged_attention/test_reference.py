"""The torch reference is softmax attention over the tokens that were put in."""

from __future__ import annotations

import torch

from headstart.kernels.paged_attention import paged_attention
from tests.kernels.paged_attention.pools import Shape, filled
from tests.numerics import assert_as_near


def test_equals_attention_over_contiguous_tensors() -> None:
    """Paged attention equals torch's own over the unpaged keys and values."""
    shape = Shape(heads=6, kv_heads=2, head_dim=20, block_size=5, lengths=(13,))
    pools, context = filled(shape), 12
    q = torch.randn(1, 6, 20)
    got = paged_attention(
        q,
        pools.k_pool,
        pools.v_pool,
        pools.tables,
        torch.zeros(1, dtype=torch.int32),
        torch.tensor([context], dtype=torch.int32),
        0.3,
        backend="reference",
    )
    keys = pools.keys[0][:context].repeat_interleave(3, dim=1).transpose(0, 1)
    values = pools.values[0][:context].repeat_interleave(3, dim=1).transpose(0, 1)
    want, exact = (
        torch.nn.functional.scaled_dot_product_attention(*whole, scale=0.3).transpose(0, 1)
        for whole in (
            (q.transpose(0, 1), keys, values),
            (q.transpose(0, 1).double(), keys.double(), values.double()),
        )
    )
    assert_as_near(got, want, exact)
