"""The dense layers are the packed ones, without their rounding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headstart.engine.decoder.dense import DenseEmbedding, DenseHead, DenseLayer, DenseStack
from headstart.kernels.decoder_layers import DecoderLayers
from tests.kernels.decoder_layers.model import SIZES, exact, layers, step
from tests.numerics import assert_as_near


@pytest.mark.parametrize("wanted", [None, torch.tensor([5, 0]), torch.tensor([], dtype=torch.long)])
def test_equals_the_packed_layers_reference(wanted: Tensor | None) -> None:
    """Output and pools are those of the operations on packed weights, dequantised one by one."""
    torch.manual_seed(0)
    packed, at = layers(), step(wanted=wanted)
    dense = DenseStack([DenseLayer.of(layer) for layer in packed], SIZES)
    mine = [pool.clone() for pool in (*at.k_pools, *at.v_pools)]
    theirs = [pool.clone() for pool in mine]
    got = dense(at.x, at.rows, mine[:3], mine[3:])
    want = DecoderLayers(packed, SIZES)(at.x, at.rows, theirs[:3], theirs[3:], backend="reference")
    twin, exact_pools = exact(packed, at)
    assert_as_near(got, want, twin)
    for a, b, pool in zip(mine, theirs, exact_pools, strict=True):
        assert_as_near(a, b, pool)


def test_embedding_and_head_are_one_table_read_both_ways() -> None:
    """The embedding picks rows; the head multiplies by them."""
    table = torch.arange(12.0).view(4, 3)
    assert DenseEmbedding(table)(torch.tensor([2, 0])).tolist() == [[6, 7, 8], [0, 1, 2]]
    assert DenseHead(table)(torch.eye(3)[1:2]).tolist() == [[1, 4, 7, 10]]
