"""The operation-by-operation layers are a transformer's."""

from __future__ import annotations

import torch

from kernels.decoder_layers import DecoderLayers
from tests.kernels.decoder_layers.model import SIZES, layers, run, step


def test_wanted_rows_are_rows_of_the_whole() -> None:
    """Asking for some rows gives those rows of the full output, in the order asked for, but for
    what torch's products round by their shape: 5e-7 of the largest number there is."""
    torch.manual_seed(0)
    model, wanted = DecoderLayers(layers(), SIZES), torch.tensor([6, 3])
    torch.manual_seed(1)
    whole, pools = run(model, step(), "reference")
    torch.manual_seed(1)
    some, pools_then = run(model, step(wanted=wanted), "reference")
    rounding = 5e-7 * float(whole.abs().max())
    torch.testing.assert_close(some, whole[wanted], atol=rounding, rtol=0)
    assert all(torch.equal(a, b) for a, b in zip(pools, pools_then, strict=True))
