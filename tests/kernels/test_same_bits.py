"""Every operation has the same bits on the portable path as with AVX2: what is computed does not
depend on the processor. (`rope`, `layer_norm`, `conv1d`, `log_mel`, `picked_softmax`: see there)"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from headstart.kernels.decoder_layers import DecoderLayers
from headstart.kernels.qlinear import pack, qlinear
from headstart.kernels.rms_norm import rms_norm
from headstart.kernels.silu_mul import silu_mul
from tests.kernels.decoder_layers.model import SIZES, layers, run, step
from tests.kernels.paged_attention.pools import filled
from tests.kernels.paged_attention.test_native import ALL, attend, rows_of
from tests.kernels.qlinear.blocks import KINDS, random_blocks
from tests.kernels.whisper_layers.test_whisper_layers import batch_of, copies, decoder, encoder

BACKENDS = ("native", "scalar")
FP32 = np.float32


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 3, 9])
def test_packed_matmul(kind: str, rows: int) -> None:
    """All kinds of weights, few rows and many."""
    weight = pack(kind, random_blocks(kind, 50, 768), 50, 768)
    x, bias = torch.randn(rows, 768), torch.randn(50)
    assert torch.equal(*(qlinear(x, weight, bias, backend=backend) for backend in BACKENDS))


@pytest.mark.parametrize("made", [encoder, decoder])
def test_whisper_layers(made: object) -> None:
    """Rows, what is kept and what is seen."""
    assert callable(made)
    model, sequences = made()
    x, watched = batch_of(sequences), [(0, 1), (1, 0)] if model.causal else []
    kept = [copies(sequences) for _ in BACKENDS]
    (one, seen), (other, seen_too) = (
        model(x, mine, watched, backend=backend)
        for mine, backend in zip(kept, BACKENDS, strict=True)
    )
    assert torch.equal(one, other)
    assert all(map(torch.equal, seen, seen_too))
    for mine, theirs in zip(*kept, strict=True):
        assert torch.equal(mine.k, theirs.k)
        assert torch.equal(mine.v, theirs.v)


def test_decoder_layers() -> None:
    """Whole layers of the language model, and the keys and values they store."""
    torch.manual_seed(0)
    model, results = DecoderLayers(layers(), SIZES), []
    for backend in BACKENDS:
        torch.manual_seed(1)
        results.append(run(model, step(), backend))
    (rows, pools), (rows_too, pools_too) = results
    assert torch.equal(rows, rows_too)
    assert all(map(torch.equal, pools, pools_too))


@pytest.mark.parametrize("shape", ALL)
def test_paged_attention(shape: object) -> None:
    """Of every storage type."""
    pools, rows = filled(shape), rows_of(shape)  # type: ignore[arg-type]
    assert torch.equal(*(attend(pools, rows, backend) for backend in BACKENDS))


def test_element_wise() -> None:
    """Norm and gate, widths that are no multiple of a vector."""
    x, y = torch.randn(5, 1003), torch.randn(5, 1003) * 20
    weight = torch.randn(1003)
    assert torch.equal(*(rms_norm(x, weight, 1e-6, backend=backend) for backend in BACKENDS))
    assert torch.equal(*(silu_mul(y, x, backend=backend) for backend in BACKENDS))


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


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_multiply_and_an_add_round_once(backend: str) -> None:
    """An F32 weight [c, a] times [1, b] is fma(a, b, c): to the last bit, on the portable path too,
    which on x86-64 is compiled for processors without that instruction."""
    for a, b, c in hard_cases():
        raw = np.array([[c, a]], np.float32).view(np.uint8)
        weight = pack("F32", raw, 1, 2)
        got = float(qlinear(torch.tensor([[1.0, b]]), weight, backend=backend))
        assert got == fused(a, b, c), (a, b, c)
