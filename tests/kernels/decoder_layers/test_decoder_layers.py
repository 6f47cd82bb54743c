"""The public entry refuses what a kernel could not survive, before anything is stored."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headstart.kernels.decoder_layers import DecoderLayers, LayerSizes
from headstart.kernels.errors import KernelInputError
from tests.kernels.decoder_layers.model import SIZES, layers, step


@pytest.mark.parametrize(
    "sizes", [replace(SIZES, ffn=128), replace(SIZES, hidden=64), replace(SIZES, kv_heads=4)]
)
def test_weights_must_fit_the_sizes(sizes: LayerSizes) -> None:
    """A weight of another shape is named when the model is made."""
    with pytest.raises(KernelInputError):
        DecoderLayers(layers(), sizes)


def test_one_pair_of_pools_a_layer() -> None:
    """Too few pools, or one of another type, are refused."""
    model, at = DecoderLayers(layers(), SIZES), step()
    with pytest.raises(KernelInputError, match="3 pairs of pools"):
        model(at.x, at.rows, at.k_pools[:2], at.v_pools)
    with pytest.raises(KernelInputError, match=r"v_pools\[1\]"):
        model(at.x, at.rows, at.k_pools, [at.v_pools[0], at.v_pools[1].half(), at.v_pools[2]])


@pytest.mark.parametrize(
    ("name", "row", "value"),
    [("slots", 2, 48), ("slots", 0, -1), ("seq_of_row", 6, 2), ("context_of_row", 4, 17)],
)
def test_rows_that_point_nowhere_store_nothing(name: str, row: int, value: int) -> None:
    """A slot, sequence or context outside what there is names the row; no pool has changed."""
    model, at = DecoderLayers(layers(), SIZES), step()
    getattr(at.rows, name)[row] = value
    before = [pool.clone() for pool in at.k_pools]
    with pytest.raises(KernelInputError, match=f"row {row} has an invalid"):
        model(at.x, at.rows, at.k_pools, at.v_pools)
    assert all(torch.equal(a, b) for a, b in zip(before, at.k_pools, strict=True))


def test_wanted_rows_must_exist() -> None:
    """A wanted row past the last is refused."""
    model, at = DecoderLayers(layers(), SIZES), step(wanted=torch.tensor([0, 7]))
    with pytest.raises(KernelInputError, match=r"wanted: expected rows 0 \.\. 6"):
        model(at.x, at.rows, at.k_pools, at.v_pools)
