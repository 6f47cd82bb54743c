"""The C kernel: exact packing, bounded error, and the same bits however rows are batched."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headstart.kernels.qlinear import QWeight, dequantize, pack, qlinear, qlinear_many, rows
from headstart.kernels.qlinear.formats import lookup
from tests.kernels.compiled import LEVELS
from tests.kernels.qlinear.blocks import KINDS, QUANTIZED, random_blocks, truth

SIZES = [(1, 256), (3, 512), (37, 768), (130, 1280)]
# fp32 sums of some hundred terms, each rounded a few times.
SUM_ERROR = 2e-5


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same random inputs in every run."""
    torch.manual_seed(0)


def weight(kind: str, size: tuple[int, int], seed: int = 0) -> tuple[QWeight, Tensor]:
    """A random weight, packed, and its exact values."""
    raw = random_blocks(kind, *size, seed=seed)
    return pack(kind, raw, *size), truth(kind, raw, *size)


def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    """What README.md says happens to activations: (x rounded, step of each value), fp32 [M, K]."""
    groups = x.reshape(x.shape[0], -1, 32)
    most = groups.abs().amax(dim=-1, keepdim=True)
    # A tensor on the left: 127.0 / most would be reciprocal(most) * 127.0, rounded otherwise.
    inverse = torch.full_like(most, 127.0) / most
    codes = torch.where(most > 0, torch.round(groups * inverse), torch.zeros(()))
    step = (most / 127.0).expand_as(groups)
    return (codes * step).reshape(x.shape), step.reshape(x.shape)


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_packing_and_rows_equal_the_reference(
    backend: str, kind: str, size: tuple[int, int]
) -> None:
    """Panels, dequantised values and looked-up rows have the reference's bits."""
    raw = random_blocks(kind, *size)
    packed = pack(kind, raw, *size, backend=backend)
    assert torch.equal(packed.panels, pack(kind, raw, *size, backend="reference").panels)
    values = truth(kind, raw, *size)
    assert torch.equal(dequantize(packed, backend=backend), values)
    ids = torch.tensor([size[0] - 1, 0])
    assert torch.equal(rows(packed, ids, backend=backend), values[ids])


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("m", [1, 2, 9])
def test_product_of_quantised_activations(
    backend: str, kind: str, size: tuple[int, int], m: int
) -> None:
    """The output is the fp64 product of the rounded activations, up to fp32 summation."""
    packed, values = weight(kind, size)
    x, bias = torch.randn(m, size[1]), torch.randn(size[0])
    rounded = quantized(x)[0] if kind in QUANTIZED else x
    want = rounded.double() @ values.double().T + bias
    # Affine kinds add scale * code and minimum apart: both are larger than their sum.
    slack = SUM_ERROR * (rounded.abs().double() @ (values.abs().double().T + 1.0) + bias.abs())
    got = qlinear(x, packed, bias, backend=backend)
    assert got.shape == (m, size[0])
    assert ((got - want).abs() <= slack).all()


@pytest.mark.parametrize("kind", QUANTIZED)
def test_error_is_within_half_a_step_of_each_activation(kind: str) -> None:
    """|y - exact| <= sum over k of |W| * step / 2, the bound that README.md derives."""
    packed, values = weight(kind, (37, 768))
    x = torch.randn(7, 768) * torch.logspace(-3, 3, 768)
    step = quantized(x)[1].double()
    exact = x.double() @ values.double().T
    bound = (step / 2) @ values.abs().double().T
    slack = SUM_ERROR * (x.abs().double() @ (values.abs().double().T + 1.0))
    error = (qlinear(x, packed) - exact).abs()
    assert (error <= bound + slack).all()
    assert (error > bound / 1000).any(), "activations were not quantised at all"


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize("kind", QUANTIZED)
def test_extreme_codes_do_not_overflow(backend: str, kind: str) -> None:
    """Largest codes against largest activations, of one sign, stay exact in 16-bit partial sums."""
    packed, _ = weight(kind, (16, 512))
    form = lookup(kind)
    codes = packed.panels.view(512 // form.block, -1)[:, -16 * form.block * form.bits // 8 :]
    codes[...] = 0x80 if kind == "Q8_0" else 0xFF  # -128, else every bit of every code
    values = dequantize(packed, backend="reference").double()
    for sign in (1.0, -1.0):
        x = torch.full((5, 512), sign)
        got = qlinear(x, packed, backend=backend).double()
        want = x.double() @ values.T
        slack = SUM_ERROR * (x.abs().double() @ (values.abs().T + 1.0))
        assert ((got - want).abs() <= slack).all()


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize("code", [63, -63, 64, -64])
def test_narrow_codes_do_not_overflow(backend: str, code: int) -> None:
    """Q8_0 codes within +-63 are added in pairs of pairs: the largest stay exact, and so does the
    first code beyond, wherever in the weight it stands."""
    packed, _ = weight("Q8_0", (16, 2048))
    codes = packed.panels.view(2048 // 32, -1)[:, -16 * 32 :]
    codes[...] = 63 if code > 0 else 0xC1
    codes[37, 5] = code & 0xFF
    values = dequantize(packed, backend="reference").double()
    for sign in (1.0, -1.0):
        x = torch.full((6, 2048), sign)
        got = qlinear(x, packed, backend=backend).double()
        want = x.double() @ values.T
        slack = SUM_ERROR * (x.abs().double() @ (values.abs().T + 1.0))
        assert ((got - want).abs() <= slack).all()


@pytest.mark.parametrize("backend", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_bitwise_independent_of_the_batch(backend: str, kind: str) -> None:
    """Row i has the same bits alone, among 2 .. 17 rows and among 131, whatever they hold."""
    packed, _ = weight(kind, (37, 768))
    x = torch.randn(131, 768)
    whole = qlinear(x, packed, backend=backend)
    for m in range(1, 18):
        for start in (0, 4, 131 - m):
            part = x[start : start + m]
            assert torch.equal(qlinear(part, packed, backend=backend), whole[start : start + m])
    other = torch.randn(131, 768)
    other[7] = x[7]
    assert torch.equal(qlinear(other, packed, backend=backend)[7], whole[7])


@pytest.mark.parametrize("kind", KINDS)
def test_thread_count_does_not_change_a_bit(kind: str) -> None:
    """One thread and three give the same bits."""
    packed, _ = weight(kind, (130, 768))
    x = torch.randn(33, 768)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = qlinear(x, packed)
        torch.set_num_threads(3)
        three = qlinear(x, packed)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(one, three)


def test_several_weights_at_once_equal_one_at_a_time() -> None:
    """qlinear_many gives each weight's own output, kinds mixed, some with a bias."""
    x = torch.randn(6, 768)
    packed = [weight(kind, (n, 768), n)[0] for kind, n in (("Q5_0", 37), ("Q8_0", 1), ("F32", 16))]
    biases = [torch.randn(37), None, torch.randn(16)]
    together = qlinear_many(x, packed, biases)
    for out, w, bias in zip(together, packed, biases, strict=True):
        assert torch.equal(out, qlinear(x, w, bias))


@pytest.mark.parametrize("kind", ["Q4_1", "Q5_0", "Q6_K"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("m", [2, 3, 6, 13, 20])
def test_a_value_that_is_not_finite_spoils_its_own_row_only(
    kind: str, value: float, m: int
) -> None:
    """A NaN or infinity in x comes out as NaN in that whole row, and nowhere else."""
    packed, _ = weight(kind, (37, 768))
    x = torch.randn(m, 768)
    clean = qlinear(x, packed)
    x[m - 2, 100] = value
    got = qlinear(x, packed)
    assert got[m - 2].isnan().all()
    keep = torch.arange(m) != m - 2
    assert torch.equal(got[keep], clean[keep])


@pytest.mark.parametrize("backend", LEVELS)
def test_zero_and_tiny_activations(backend: str) -> None:
    """A group of zeros, or of values too small to divide by, contributes nothing and no NaN."""
    packed, _ = weight("Q5_0", (37, 64))
    x = torch.zeros(3, 64)
    x[1], x[2] = 1e-38, -1e-42
    assert torch.equal(qlinear(x, packed, backend=backend), torch.zeros(3, 37))


def test_strided_input_is_read_by_value() -> None:
    """A transposed or sliced x gives what its contiguous copy gives."""
    packed, _ = weight("Q4_K", (37, 256))
    x = torch.randn(256, 5).T
    assert torch.equal(qlinear(x, packed), qlinear(x.contiguous(), packed))
