"""Every operation has the same bits at every level of vector instructions: what is computed does
not depend on the processor. (`rope`, `layer_norm`, `conv1d`, `log_mel`, `picked_softmax`: there)"""

from __future__ import annotations

import ctypes
from fractions import Fraction

import numpy as np
import pytest
import torch

from headstart.kernels import native
from headstart.kernels.decoder_layers import DecoderLayers
from headstart.kernels.qlinear import FORMATS, pack, qlinear
from headstart.kernels.qlinear import native as qlinear_native
from headstart.kernels.rms_norm import rms_norm
from headstart.kernels.silu_mul import silu_mul
from tests.kernels.compiled import LEVELS
from tests.kernels.decoder_layers.model import SIZES, layers, run, step
from tests.kernels.paged_attention.pools import filled
from tests.kernels.paged_attention.test_native import ALL, attend, rows_of
from tests.kernels.paged_attention.test_two_types import CODES, case
from tests.kernels.qlinear.blocks import KINDS, random_blocks
from tests.kernels.whisper_layers.test_whisper_layers import batch_of, copies, decoder, encoder

FP32 = np.float32


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same numbers, and NaN in the same places."""
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 3, 4, 8, 9, 15, 16, 134])
@pytest.mark.parametrize("cols", [256, 1280])
def test_packed_matmul(kind: str, rows: int, cols: int) -> None:
    """All kinds of weights, few rows and many, tiles and chunks that are not full; groups that are
    zero, of values too small to divide by, and a row that is not finite."""
    weight = pack(kind, random_blocks(kind, 50, cols), 50, cols)
    x, bias = torch.randn(rows, cols), torch.randn(50)
    x[-1, :64], x[0, 32:64], x[0, 65] = 0.0, 1e-33, 1e30
    if rows > 1:
        x[rows // 2, 7] = torch.inf
    want = qlinear(x, weight, bias, backend="scalar")
    for name in LEVELS:
        assert same(qlinear(x, weight, bias, backend=name), want)


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7, 13, 129])
def test_nothing_but_the_output_is_written(name: str, kind: str, rows: int) -> None:
    """An output between NaN rows, itself full of NaN before: all of it is computed, and no more."""
    weight = pack(kind, random_blocks(kind, 19, 256), 19, 256)
    x, around = torch.randn(rows, 256), torch.full((rows + 2, 19), torch.nan)
    library = native.library("qlinear", qlinear_native.declare, name)
    assert library is not None
    code = FORMATS[kind].code
    one = qlinear_native.NativeWeight(
        code, 19, weight.panels.data_ptr(), None, around[1].data_ptr()
    )
    assert library.hs_qlinear(x.data_ptr(), rows, 256, 1, ctypes.addressof(one), 2) == 0
    assert torch.equal(around[1:-1], qlinear(x, weight, backend="scalar"))
    assert around[0].isnan().all()
    assert around[-1].isnan().all()


@pytest.mark.parametrize("made", [encoder, decoder])
def test_whisper_layers(made: object) -> None:
    """Rows, what is kept and what is seen."""
    assert callable(made)
    model, sequences = made()
    x, watched = batch_of(sequences), [(0, 1), (1, 0)] if model.causal else []
    kept = copies(sequences)
    want, wanted = model(x, kept, watched, backend="scalar")
    for name in LEVELS:
        mine = copies(sequences)
        got, seen = model(x, mine, watched, backend=name)
        assert torch.equal(got, want)
        assert all(map(torch.equal, seen, wanted))
        for ours, theirs in zip(mine, kept, strict=True):
            assert torch.equal(ours.k, theirs.k)
            assert torch.equal(ours.v, theirs.v)


def test_decoder_layers() -> None:
    """Whole layers of the language model, and the keys and values they store."""
    torch.manual_seed(0)
    model, results = DecoderLayers(layers(), SIZES), []
    for backend in LEVELS:
        torch.manual_seed(1)
        results.append(run(model, step(), backend))
    want, wanted = results[-1]
    for rows, pools in results:
        assert torch.equal(rows, want)
        assert all(map(torch.equal, pools, wanted))


@pytest.mark.parametrize("shape", ALL)
def test_paged_attention(shape: object) -> None:
    """Of every storage type."""
    pools, rows = filled(shape), rows_of(shape)  # type: ignore[arg-type]
    want = attend(pools, rows, "scalar")
    assert all(torch.equal(attend(pools, rows, name), want) for name in LEVELS)


@pytest.mark.parametrize("code", CODES, ids=str)
def test_paged_attention_over_two_types(code: torch.dtype) -> None:
    """What is stored in blocks of both types, and what is read."""
    results = []
    for name in LEVELS:
        at = case(104, code)
        at.fill(name)
        results.append((at.attend(name), at.k_pool.view(torch.int8), at.v_pool.view(torch.int8)))
    assert all(torch.equal(a, b) for got in results for a, b in zip(got, results[0], strict=True))


def test_element_wise() -> None:
    """Norm and gate, widths that are no multiple of a vector."""
    x, y = torch.randn(5, 1003), torch.randn(5, 1003) * 20
    weight = torch.randn(1003)
    want, wanted = rms_norm(x, weight, 1e-6, backend="scalar"), silu_mul(y, x, backend="scalar")
    for name in LEVELS:
        assert torch.equal(rms_norm(x, weight, 1e-6, backend=name), want)
        assert torch.equal(silu_mul(y, x, backend=name), wanted)


def fused(a: float, b: float, c: float) -> float:
    """a b + c rounded once to fp32, by whole numbers."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    near = FP32(float(exact))
    around = (np.nextafter(near, FP32(-np.inf)), near, np.nextafter(near, FP32(np.inf)))
    return float(min(around, key=lambda x: (abs(Fraction(float(x)) - exact), x.view(np.int32) & 1)))


def hard_cases() -> list[tuple[float, float, float]]:
    """Sums that a double rounds onto the midpoint of two floats, or that leave fp32's normal range,
    where rounding twice gives another float than rounding once."""
    just_off = 1 + 2.0**-18, 1 - 2.0**-18  # their product: 1 - 2^-36
    cases = []
    for scale in (2.0**-12, -(2.0**-12)):
        for c in (1.0, 1 + 2.0**-23, -1.0, -1 - 2.0**-23):
            cases.append((scale * just_off[0], 2.0**-12 * just_off[1], c))
    tiny = [
        (2.0**-70 * (1 + 2.0**-20), 2.0**-70 * m, s * 2.0**-130) for m in (1, 3) for s in (1, -1)
    ]
    random = np.random.default_rng(0).standard_normal((400, 3)).astype(np.float32)
    return [*cases, *tiny, (0.0, 5.0, 0.0), *(tuple(map(float, row)) for row in random)]  # type: ignore[list-item]


@pytest.mark.parametrize("backend", LEVELS)
def test_a_multiply_and_an_add_round_once(backend: str) -> None:
    """An F32 weight [c, a] times [1, b] is fma(a, b, c): to the last bit, on the portable path too,
    which on x86-64 is compiled for processors without that instruction."""
    for a, b, c in hard_cases():
        raw = np.array([[c, a]], np.float32).view(np.uint8)
        weight = pack("F32", raw, 1, 2)
        got = float(qlinear(torch.tensor([[1.0, b]]), weight, backend=backend))
        assert got == fused(a, b, c), (a, b, c)
