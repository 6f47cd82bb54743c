"""Rows of codes with a scale: how far off they are, and that each stands alone."""

from __future__ import annotations

import pytest
import torch

from headstart.kernels.paged_attention.storage import (
    LARGEST,
    SCALE_BYTES,
    decode,
    encode,
    gather,
    head_dim_of,
    row_width,
    store,
)

CODED = [torch.int8, torch.float8_e4m3fn]
KINDS = [torch.float64, torch.float32, torch.bfloat16, torch.float16, *CODED]


def rows_of(count: int = 500, head_dim: int = 64) -> torch.Tensor:
    """Random rows of very different sizes, [count, head_dim]."""
    generator = torch.Generator().manual_seed(3)
    sizes = torch.randn(count, 1, generator=generator).mul(3).exp()
    return torch.randn(count, head_dim, generator=generator) * sizes


def test_int8_is_off_by_half_a_step() -> None:
    """No number is further off than half of the row's largest over 127."""
    x = rows_of()
    step = x.abs().amax(-1, keepdim=True) / 127
    error = (decode(encode(x, torch.int8)) - x).abs()
    assert (error <= step * 0.5001).all()
    assert error.max() > 0


def test_fp8_is_off_by_a_sixteenth_of_the_number() -> None:
    """Three bits behind the point: 1/16 of a number, or half the least code where it is small."""
    x = rows_of()
    least = x.abs().amax(-1, keepdim=True) / 448 * 2.0**-9
    error = (decode(encode(x, torch.float8_e4m3fn)) - x).abs()
    assert (error <= torch.maximum(x.abs() / 16, least * 0.5) * 1.0001).all()


@pytest.mark.parametrize("dtype", CODED, ids=str)
def test_what_is_decoded_is_coded_alike(dtype: torch.dtype) -> None:
    """Decoding and coding again moves no number by more than fp32's rounding: K/V that are taken
    out, left alone and put back do not wander."""
    once = decode(encode(rows_of(), dtype))
    torch.testing.assert_close(decode(encode(once, dtype)), once, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", CODED, ids=str)
def test_a_row_is_coded_by_itself(dtype: torch.dtype) -> None:
    """A row's bytes do not depend on the rows beside it."""
    x = rows_of(20)
    whole = encode(x, dtype).view(torch.int8)
    assert all(torch.equal(encode(x[i], dtype).view(torch.int8), whole[i]) for i in range(20))


@pytest.mark.parametrize("dtype", CODED, ids=str)
def test_zeros_stay_zeros_and_nan_stays(dtype: torch.dtype) -> None:
    """A row of zeros has no scale and is zeros; one with a NaN or an infinity is not finite."""
    x = rows_of(3)
    x[0], x[1, 5], x[2, 6] = 0.0, float("nan"), float("inf")
    back = decode(encode(x, dtype))
    assert (back[0] == 0).all()
    assert back[1].isnan().all()
    assert not back[2].isfinite().any()


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_a_row_has_its_width(dtype: torch.dtype) -> None:
    """Codes carry their scale's bytes behind them; floats carry nothing."""
    rows = encode(rows_of(2, 20), dtype)
    assert rows.shape == (2, row_width(20, dtype))
    assert rows.shape[-1] == 20 + (SCALE_BYTES if dtype in LARGEST else 0)
    assert head_dim_of(rows) == 20


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_what_was_stored_is_gathered(dtype: torch.dtype) -> None:
    """Tokens put in slots come back in the order of the blocks asked for, as they were coded."""
    heads = rows_of(7 * 2, 20).view(7, 2, 20)
    pool = encode(torch.zeros(5, 2, 4, 20), dtype)
    store(pool, heads, torch.tensor([12, 13, 14, 15, 0, 1, 2]))
    got = gather(pool, torch.tensor([3, 0]), 7)
    assert torch.equal(got, decode(encode(heads, dtype)).transpose(0, 1))
