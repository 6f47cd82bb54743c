"""The operation-by-operation layers are a transformer's."""

from __future__ import annotations

import torch

from headstart.kernels.decoder_layers import DecoderLayers
from tests.kernels.decoder_layers.model import SIZES, exact, layers, run, step
from tests.numerics import assert_as_near


def test_wanted_rows_are_rows_of_the_whole() -> None:
    """Asking for some rows gives those rows of the full output, in the order asked for, but for
    what torch's products round by their shape."""
    torch.manual_seed(0)
    model, wanted = DecoderLayers(layers(), SIZES), torch.tensor([6, 3])
    torch.manual_seed(1)
    whole, pools = run(model, step(), "reference")
    torch.manual_seed(1)
    some, pools_then = run(model, step(wanted=wanted), "reference")
    torch.manual_seed(1)
    twin, exact_pools = exact(model.layers, step(wanted=wanted))
    assert_as_near(some, whole[wanted], twin)
    for pool, exact_pool in zip(pools, exact_pools, strict=True):
        assert (pool - exact_pool).norm() < 1e-3 * exact_pool.norm(), "the twin is another model"
    assert all(torch.equal(a, b) for a, b in zip(pools, pools_then, strict=True))
