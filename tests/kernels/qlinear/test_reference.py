"""The torch reference dequantises exactly and multiplies in fp32."""

from __future__ import annotations

import pytest
import torch

from headstart.kernels.qlinear import dequantize, pack, qlinear, rows
from tests.kernels.qlinear.blocks import KINDS, random_blocks, truth


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(1, 256), (37, 768), (16, 512)])
def test_dequantize_is_exact(kind: str, size: tuple[int, int]) -> None:
    """Packed and unpacked again, every weight has the `gguf` package's value, bit for bit."""
    raw = random_blocks(kind, *size)
    packed = pack(kind, raw, *size, backend="reference")
    assert torch.equal(dequantize(packed, backend="reference"), truth(kind, raw, *size))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_rows_of_the_weight(kind: str) -> None:
    """A look-up gives whole rows in the order asked for, repeats included."""
    raw = random_blocks(kind, 37, 256)
    ids = torch.tensor([36, 0, 17, 0])
    found = rows(pack(kind, raw, 37, 256), ids, backend="reference")
    assert torch.equal(found, truth(kind, raw, 37, 256)[ids])


def test_qlinear_is_a_plain_fp32_matmul() -> None:
    """backend="reference" is torch's linear on the dequantised weight: no activation rounding."""
    raw = random_blocks("Q5_0", 20, 64)
    x, bias = torch.randn(3, 64), torch.randn(20)
    ours = qlinear(x, pack("Q5_0", raw, 20, 64), bias, backend="reference")
    want = torch.nn.functional.linear(x, truth("Q5_0", raw, 20, 64), bias)
    assert torch.equal(ours, want)
